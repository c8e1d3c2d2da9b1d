package kiwigw.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/**
 * Keeps two processes from writing the rows of one checkpoint: what a run does not write again is what it finds in the
 * topic at its start, and nobody may add to that later. The kernel lets go of it when the process is gone.
 */
final class WriterLock implements Closeable {
  /** Folders whose locks this process has: it must not even open such a file again, for closing it lets go of them. */
  private static final Set<Path> HELD = new HashSet<>();

  private final Path folder;
  private final FileChannel file;

  private WriterLock(Path folder, FileChannel file) {
    this.folder = folder;
    this.file = file;
  }

  /** Take that of a checkpoint in a folder of this machine. StillWritten: another process, or run, has it. */
  static WriterLock of(Path folder) throws IOException {
    synchronized (HELD) {
      if (HELD.contains(folder)) {
        throw new StillWritten();
      }
      Files.createDirectories(folder);
      FileChannel file =
          FileChannel.open(folder.resolve("kiwi-writer"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
      if (!take(file)) {
        file.close();
        throw new StillWritten();
      }
      HELD.add(folder);
      return new WriterLock(folder, file);
    }
  }

  private static boolean take(FileChannel file) {
    try {
      return file.tryLock() != null;
    } catch (IOException none) { // a file system that has no locks
      return true;
    }
  }

  /** Let go of it. Does nothing the second time. */
  @Override
  public void close() throws IOException {
    synchronized (HELD) {
      if (file.isOpen()) {
        HELD.remove(folder);
        file.close();
      }
    }
  }
}
