package kiwigw.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/**
 * Writes the messages of `protocol/messages.py`: a map whose first member is the name of the class, in MessagePack,
 * behind its length in 4 bytes (big-endian). Numbers take as few bytes as they can, as the gateway writes them.
 */
final class MessagePack {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(64);
  private final DataOutputStream out = new DataOutputStream(bytes);

  /** Begin the message of a class with so many members. */
  MessagePack(String tag, int members) {
    try {
      out.writeInt(0); // the length, once it is known
      out.writeByte(0x80 | (members + 1));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    put("type", tag);
  }

  /** Add a text of at most 65,535 bytes. */
  MessagePack put(String name, String value) {
    text(name);
    text(value);
    return this;
  }

  /** Add a number that is not negative. */
  MessagePack put(String name, long value) {
    text(name);
    try {
      if (value < 0x80) {
        out.writeByte((int) value);
      } else if (value < 0x100) {
        out.writeByte(0xcc);
        out.writeByte((int) value);
      } else if (value < 0x10000) {
        out.writeByte(0xcd);
        out.writeShort((int) value);
      } else if (value < 0x100000000L) {
        out.writeByte(0xce);
        out.writeInt((int) value);
      } else {
        out.writeByte(0xcf);
        out.writeLong(value);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return this;
  }

  /** Return the frame of a message without bytes. */
  byte[] frame() {
    return frame(0);
  }

  /** Name the last member, bytes, and return the frame with so much room behind it for them. */
  byte[] frameBefore(String name, int size) {
    text(name);
    try {
      out.writeByte(0xc6);
      out.writeInt(size);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return frame(size);
  }

  private byte[] frame(int room) {
    byte[] written = bytes.toByteArray();
    byte[] frame = new byte[written.length + room];
    System.arraycopy(written, 0, frame, 0, written.length);
    int length = frame.length - 4;
    for (int at = 3; at >= 0; at--, length >>>= 8) {
      frame[at] = (byte) length;
    }
    return frame;
  }

  private void text(String value) {
    byte[] text = value.getBytes(StandardCharsets.UTF_8);
    try {
      if (text.length < 32) {
        out.writeByte(0xa0 | text.length);
      } else if (text.length < 0x100) {
        out.writeByte(0xd9);
        out.writeByte(text.length);
      } else {
        out.writeByte(0xda);
        out.writeShort(text.length);
      }
      out.write(text);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
