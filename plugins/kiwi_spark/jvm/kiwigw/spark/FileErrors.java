package kiwigw.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** Says what went wrong with a file as Hadoop's file systems do. */
final class FileErrors {
  private FileErrors() {}

  /** Return the error to throw for one of java.nio. Others, a full disk for one, are themselves, with their words. */
  static IOException of(IOException error, Path there) {
    if (error instanceof NoSuchFileException) {
      return because(notFound(there), error);
    }
    if (error instanceof java.nio.file.FileAlreadyExistsException) {
      return because(exists(there), error);
    }
    if (error instanceof AccessDeniedException) {
      return because(new AccessControlException("Permission denied: " + error.getMessage()), error);
    }
    if (error instanceof DirectoryNotEmptyException) {
      return because(new PathIsNotEmptyDirectoryException(there.toString()), error);
    }
    if (error instanceof java.nio.file.FileSystemException && isBelowFile(there)) {
      return because(new ParentNotDirectoryException("What " + there + " is to be in is not a directory"), error);
    }
    return error;
  }

  static FileNotFoundException notFound(Path there) {
    return new FileNotFoundException("File " + there + " does not exist");
  }

  static FileAlreadyExistsException exists(Path there) {
    return new FileAlreadyExistsException("File already exists: " + there);
  }

  /** Return whether what would have to be a folder is something else. */
  private static boolean isBelowFile(Path there) {
    for (Path above = there.getParent(); above != null; above = above.getParent()) {
      if (Files.exists(above)) {
        return !Files.isDirectory(above);
      }
    }
    return false;
  }

  private static IOException because(IOException mapped, IOException cause) {
    mapped.initCause(cause);
    return mapped;
  }
}
