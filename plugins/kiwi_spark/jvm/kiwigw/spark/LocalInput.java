package kiwigw.spark;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;

/** A file that is being read. Not by a FileChannel: an interrupt, with which Spark stops queries, closes those. */
final class LocalInput extends FSInputStream {
  private final RandomAccessFile file;
  private final FileSystem.Statistics statistics;

  private LocalInput(RandomAccessFile file, FileSystem.Statistics statistics) {
    this.file = file;
    this.statistics = statistics;
  }

  /** Open a file. FileNotFoundException: it is not there, or a folder. AccessControlException: not readable. */
  static LocalInput open(Path there, FileSystem.Statistics statistics) throws IOException {
    try {
      return new LocalInput(new RandomAccessFile(there.toFile(), "r"), statistics);
    } catch (FileNotFoundException error) {
      if (!Files.exists(there) || Files.isDirectory(there)) {
        throw error;
      }
      if (!Files.isReadable(there)) {
        throw FileErrors.of(new AccessDeniedException(there.toString()), there);
      }
      throw new IOException(error.getMessage(), error); // too many open files, for one
    }
  }

  @Override
  public int read() throws IOException {
    int one = file.read();
    if (one >= 0) {
      statistics.incrementBytesRead(1);
    }
    return one;
  }

  @Override
  public int read(byte[] bytes, int start, int length) throws IOException {
    int got = file.read(bytes, start, length);
    if (got > 0) {
      statistics.incrementBytesRead(got);
    }
    return got;
  }

  @Override
  public int available() throws IOException {
    return (int) Math.min(Integer.MAX_VALUE, Math.max(0, file.length() - file.getFilePointer()));
  }

  @Override
  public long skip(long bytes) throws IOException {
    long from = file.getFilePointer();
    long skipped = Math.max(0, Math.min(bytes, file.length() - from));
    file.seek(from + skipped);
    return skipped;
  }

  /** Go on from a position. EOFException: it is negative, or behind the end. */
  @Override
  public void seek(long position) throws IOException {
    if (position < 0 || position > file.length()) {
      throw new EOFException("there is no position " + position + " in " + file.length() + " bytes");
    }
    file.seek(position);
  }

  @Override
  public long getPos() throws IOException {
    return file.getFilePointer();
  }

  @Override
  public boolean seekToNewSource(long position) {
    return false;
  }

  @Override
  public void close() throws IOException {
    file.close();
  }
}
