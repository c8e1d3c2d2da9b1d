package kiwigw.spark;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.permission.FsPermission;

/** Makes and deletes folders, brings their names to the disk, and translates permissions. */
final class LocalFolders {
  /** What Linux says where a file system brings no folders to the disk. */
  private static final Set<String> NO_SYNC = Set.of("Invalid argument", "Bad file descriptor");

  private LocalFolders() {}

  /** Make a folder and those above it as they are needed, with the permissions that the process gives. */
  static void make(Path folder) throws IOException {
    if (folder == null || Files.isDirectory(folder)) {
      return;
    }
    if (Files.exists(folder)) {
      throw new ParentNotDirectoryException("Parent path is not a directory: " + folder);
    }
    make(folder.getParent());
    try {
      makeOne(folder, null);
    } catch (IOException error) {
      throw FileErrors.of(error, folder);
    }
  }

  /** Check that there is a folder. FileNotFoundException: there is nothing. ParentNotDirectoryException: a file. */
  static void check(Path folder) throws IOException {
    if (folder != null && !Files.isDirectory(folder)) {
      throw Files.exists(folder) ? new ParentNotDirectoryException(folder.toString()) : FileErrors.notFound(folder);
    }
  }

  /** Make a folder. permissions: exactly those, whatever the process gives; null: what it gives. */
  static void makeOne(Path folder, Set<PosixFilePermission> permissions) throws IOException {
    try {
      Files.createDirectory(folder);
    } catch (java.nio.file.FileAlreadyExistsException there) {
      if (Files.isDirectory(folder)) { // another one may have made it meanwhile
        return;
      }
      throw there;
    }
    if (permissions != null) {
      permit(folder, permissions);
    }
    sync(folder.getParent());
  }

  /** Set permissions where they are others, as the process may have taken some away. Some file systems have none. */
  static void permit(Path path, Set<PosixFilePermission> permissions) throws IOException {
    if (!Files.getPosixFilePermissions(path).equals(permissions)) {
      Files.setPosixFilePermissions(path, permissions);
    }
  }

  /** Delete a folder and all in it. Links are deleted, never followed. */
  static void deleteAll(Path folder) throws IOException {
    Files.walkFileTree(
        folder,
        new SimpleFileVisitor<>() {
          @Override
          public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
            Files.deleteIfExists(file); // another one may do the same
            return FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFileFailed(Path file, IOException error) throws IOException {
            if (error instanceof java.nio.file.NoSuchFileException) {
              return FileVisitResult.CONTINUE;
            }
            throw error;
          }

          @Override
          public FileVisitResult postVisitDirectory(Path inner, IOException error) throws IOException {
            if (error != null) {
              throw error;
            }
            Files.deleteIfExists(inner);
            return FileVisitResult.CONTINUE;
          }
        });
  }

  /**
   * Wait until the names in a folder are on the disk, where the file system can say so. Also in a thread that is
   * interrupted: it stays so.
   */
  static void sync(Path folder) throws IOException {
    boolean interrupted = false;
    try {
      while (true) {
        interrupted |= Thread.interrupted();
        try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
          force(channel);
          return;
        } catch (ClosedByInterruptException again) {
          interrupted = true;
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private static void force(FileChannel folder) throws IOException {
    try {
      folder.force(true);
    } catch (IOException error) {
      if (!NO_SYNC.contains(String.valueOf(error.getMessage()))) {
        throw error;
      }
    }
  }

  static Set<PosixFilePermission> permissions(FsPermission permission) {
    return PosixFilePermissions.fromString(
        permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL);
  }

  static FsPermission permission(Set<PosixFilePermission> permissions) {
    int mode = 0;
    for (PosixFilePermission one : permissions) {
      mode |= 0400 >> one.ordinal();
    }
    return new FsPermission((short) mode);
  }
}
