package kiwigw.spark;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Set;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;

/**
 * Gives a file or a folder another name, at once, and on the disk when it returns.
 *
 * <p>Theory of operation. `rename` of Linux replaces its target; `link` is what fails where there is one, whoever else
 * comes at the same time. So a file that must replace nothing gets its new name by a link, and then loses the old one.
 * Who is killed between the two leaves both names; Spark's own ends so with a temporary file, too. File systems without
 * links (FAT, some of a network) have only what LocalFs does everywhere, a look and then a `rename`: there two of
 * this process are kept apart, but not two processes.
 */
final class LocalRename {
  /** What Linux says where a file system has no links. */
  private static final Set<String> NO_LINKS =
      Set.of("Operation not permitted", "Operation not supported", "Function not implemented", "Too many links");

  private LocalRename() {}

  /**
   * Rename. overwrite: replaces a file, or a folder in which nothing is.
   *
   * <p>FileNotFoundException: no source, or no folder for the target. FileAlreadyExistsException: there is a target.
   * ParentNotDirectoryException: its folder is none. IOException: the target is a folder with something in it, or one
   * of the two is a folder and the other is not.
   */
  static void rename(Path source, Path target, boolean overwrite) throws IOException {
    if (!isThere(source)) {
      throw FileErrors.notFound(source);
    }
    if (isThere(target)) {
      checkTarget(source, target, overwrite);
    } else {
      LocalFolders.check(target.getParent());
    }
    try {
      Checksums.forget(target);
      Checksums.forget(source);
      if (overwrite) {
        Files.move(source, target, StandardCopyOption.ATOMIC_MOVE);
      } else if (Files.isDirectory(source, LinkOption.NOFOLLOW_LINKS)) {
        lookAndMove(source, target);
      } else {
        linkOrMove(source, target);
      }
      sync(source, target);
    } catch (IOException error) {
      throw FileErrors.of(error, isThere(source) ? target : source);
    }
  }

  private static void checkTarget(Path source, Path target, boolean overwrite) throws IOException {
    boolean folder = Files.isDirectory(target, LinkOption.NOFOLLOW_LINKS);
    if (source.equals(target)) {
      throw FileErrors.exists(target);
    }
    if (folder != Files.isDirectory(source, LinkOption.NOFOLLOW_LINKS)) {
      throw new IOException("Of " + source + " and " + target + " only one is a directory");
    }
    if (!overwrite) {
      throw FileErrors.exists(target);
    }
    if (folder && !isEmpty(target)) {
      throw new PathIsNotEmptyDirectoryException(target.toString());
    }
  }

  private static void linkOrMove(Path source, Path target) throws IOException {
    try {
      Files.createLink(target, source);
    } catch (FileSystemException error) {
      if (!NO_LINKS.contains(String.valueOf(error.getReason()))) {
        throw error;
      }
      lookAndMove(source, target);
      return;
    }
    Files.delete(source);
  }

  private static synchronized void lookAndMove(Path source, Path target) throws IOException {
    if (isThere(target)) {
      throw FileErrors.exists(target);
    }
    Files.move(source, target, StandardCopyOption.ATOMIC_MOVE);
  }

  private static void sync(Path source, Path target) throws IOException {
    Path folder = target.getParent();
    LocalFolders.sync(folder);
    if (!source.getParent().equals(folder)) {
      LocalFolders.sync(source.getParent());
    }
  }

  private static boolean isThere(Path path) {
    return Files.exists(path, LinkOption.NOFOLLOW_LINKS);
  }

  private static boolean isEmpty(Path folder) throws IOException {
    try (DirectoryStream<Path> names = Files.newDirectoryStream(folder)) {
      return !names.iterator().hasNext();
    }
  }
}
