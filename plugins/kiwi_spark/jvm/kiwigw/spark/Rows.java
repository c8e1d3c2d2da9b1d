package kiwigw.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows that are gathered as columns, and how they are written (little-endian, `protocol/packed_rows.py` reads them):
 *
 * <pre>
 * int32  number of rows
 * int32  1 if they have keys, else 0
 * int64  the place of every row, where rows have places
 * int32  where the value of every row ends
 * int32  where the key of every row ends, where they have keys
 *        the values, one after the other, then the keys: JSON text in UTF-8
 * </pre>
 *
 * <p>Rows have two columns, `key` and `value`. Either all have a key or none. Not for several threads at once.
 */
final class Rows {
  /** Bytes of a message beside what is in its largest member. */
  static final int OVERHEAD = 1024;

  /** Bytes of one message at most. */
  static final int MAX_MESSAGE = 16 * 1024 * 1024;

  private final boolean placed;
  private int rows;
  private boolean keyed;
  private long[] places;
  private int[] valueEnds = new int[64];
  private int[] keyEnds = new int[64];
  private byte[] values = new byte[4096];
  private byte[] keys = new byte[0];

  /** placed: whether rows have places. */
  Rows(boolean placed) {
    this.placed = placed;
    this.places = new long[placed ? 64 : 0];
  }

  int count() {
    return rows;
  }

  /** Return the bytes that `pack` writes. */
  int size() {
    int fixed = (placed ? 8 : 0) + 4 + (keyed ? 4 : 0);
    return 8 + rows * fixed + valuesEnd() + keysEnd();
  }

  /** Return whether a row can be added: alone it always can. */
  boolean hasRoomFor(InternalRow row, int most) {
    return rows == 0 || size() + weight(row) <= most;
  }

  /** Return the bytes that a row adds. */
  static int weight(InternalRow row) {
    int key = row.isNullAt(0) ? 0 : row.getUTF8String(0).numBytes() + 4;
    return 12 + key + row.getUTF8String(1).numBytes();
  }

  /** Add a row. place: where it comes from, if rows have places. */
  void add(InternalRow row, long place) {
    if (rows == valueEnds.length) {
      grow();
    }
    values = append(values, valuesEnd(), row.getUTF8String(1));
    valueEnds[rows] = valuesEnd() + row.getUTF8String(1).numBytes();
    if (!row.isNullAt(0)) {
      keyed = true;
      keys = append(keys, keysEnd(), row.getUTF8String(0));
      keyEnds[rows] = keysEnd() + row.getUTF8String(0).numBytes();
    }
    if (placed) {
      places[rows] = place;
    }
    rows++;
  }

  /** Write them behind the head of a message, which ends with the member `rows`. Nothing is left here. */
  byte[] seal(MessagePack head) {
    int size = size();
    byte[] frame = head.frameBefore("rows", size);
    ByteBuffer out = ByteBuffer.wrap(frame, frame.length - size, size).order(ByteOrder.LITTLE_ENDIAN);
    out.putInt(rows).putInt(keyed ? 1 : 0);
    if (placed) {
      out.asLongBuffer().put(places, 0, rows);
      out.position(out.position() + 8 * rows);
    }
    out.asIntBuffer().put(valueEnds, 0, rows);
    out.position(out.position() + 4 * rows);
    if (keyed) {
      out.asIntBuffer().put(keyEnds, 0, rows);
      out.position(out.position() + 4 * rows);
    }
    out.put(values, 0, valuesEnd()).put(keys, 0, keysEnd());
    rows = 0;
    keyed = false;
    values = values.length > MAX_MESSAGE / 4 ? new byte[4096] : values; // one large row is not to cost for ever
    return frame;
  }

  private int valuesEnd() {
    return rows == 0 ? 0 : valueEnds[rows - 1];
  }

  private int keysEnd() {
    return rows == 0 || !keyed ? 0 : keyEnds[rows - 1];
  }

  private void grow() {
    valueEnds = Arrays.copyOf(valueEnds, rows * 2);
    keyEnds = Arrays.copyOf(keyEnds, rows * 2);
    places = placed ? Arrays.copyOf(places, rows * 2) : places;
  }

  private static byte[] append(byte[] to, int end, UTF8String text) {
    int needed = end + text.numBytes();
    byte[] room = needed <= to.length ? to : Arrays.copyOf(to, Math.max(needed, to.length * 2));
    text.writeToMemory(room, Platform.BYTE_ARRAY_OFFSET + end);
    return room;
  }
}
