package kiwigw.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Keeps two processes from writing the rows of one checkpoint: what a run does not write again is what it finds in the
 * topic at its start, and nobody may add to that later. The kernel lets go of it when the process is gone.
 */
final class WriterLock implements Closeable {
  private final FileChannel file;

  private WriterLock(FileChannel file) {
    this.file = file;
  }

  /** Take that of a checkpoint in a folder of this machine. StillWritten: another process has it. */
  static WriterLock of(Path folder) throws IOException {
    Files.createDirectories(folder);
    FileChannel file =
        FileChannel.open(folder.resolve("kiwi-writer"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    boolean taken = false;
    try {
      taken = take(file);
    } finally {
      if (!taken) {
        file.close();
      }
    }
    if (!taken) {
      throw new StillWritten();
    }
    return new WriterLock(file);
  }

  private static boolean take(FileChannel file) {
    try {
      return file.tryLock() != null;
    } catch (OverlappingFileLockException another) { // a run of this process
      return false;
    } catch (IOException none) { // a file system that has no locks
      return true;
    }
  }

  @Override
  public void close() throws IOException {
    file.close();
  }
}
