package kiwigw.spark;

import java.io.BufferedOutputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;

/**
 * A file that is being written. What was written is on the disk when `close` has returned.
 *
 * <p>Not by a FileChannel: an interrupt, with which Spark stops queries, closes those.
 */
final class LocalOutput extends OutputStream implements Syncable, StreamCapabilities {
  private static final int BUFFER_BYTES = 16 * 1024;

  private final FileOutputStream file;
  private final BufferedOutputStream buffered;
  private boolean closed;

  private LocalOutput(FileOutputStream file) {
    this.file = file;
    this.buffered = new BufferedOutputStream(file, BUFFER_BYTES);
  }

  /**
   * Open a file: a new one, or, where the flags allow it, one that is there. permissions: exactly those, of a new one.
   *
   * <p>FileAlreadyExistsException: it is there, or a folder. FileNotFoundException, ParentNotDirectoryException,
   * AccessControlException: as usual. IOException: anything else, a full disk for one.
   */
  static LocalOutput open(Path there, EnumSet<CreateFlag> flags, Set<PosixFilePermission> permissions)
      throws IOException {
    boolean append = flags.contains(CreateFlag.APPEND);
    boolean mayExist = append || flags.contains(CreateFlag.OVERWRITE);
    try {
      if (Files.isDirectory(there)) {
        throw FileErrors.exists(there);
      }
      if (mayExist || !Files.exists(there)) {
        Checksums.forget(there);
      }
      create(there, mayExist, permissions);
      return new LocalOutput(new FileOutputStream(there.toFile(), append));
    } catch (FileNotFoundException error) {
      throw refused(there, error); // of FileOutputStream, which has no other one
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
  }

  private static void create(Path there, boolean mayExist, Set<PosixFilePermission> permissions) throws IOException {
    try {
      Files.createFile(there, PosixFilePermissions.asFileAttribute(permissions));
      LocalFolders.permit(there, permissions);
    } catch (java.nio.file.FileAlreadyExistsException error) {
      if (!mayExist) {
        throw error;
      }
    }
  }

  /** Return what FileOutputStream means by FileNotFoundException: it says so also of too many open files. */
  static IOException refused(Path there, FileNotFoundException error) {
    if (!Files.exists(there) || Files.isDirectory(there)) {
      return error;
    }
    if (!Files.isWritable(there)) {
      return FileErrors.of(new java.nio.file.AccessDeniedException(there.toString()), there);
    }
    return new IOException(error.getMessage(), error);
  }

  @Override
  public void write(int one) throws IOException {
    buffered.write(one);
  }

  @Override
  public void write(byte[] bytes, int start, int length) throws IOException {
    buffered.write(bytes, start, length);
  }

  @Override
  public void flush() throws IOException {
    buffered.flush();
  }

  @Override
  public void hflush() throws IOException {
    flush();
  }

  /** Wait until all is on the disk. */
  @Override
  public void hsync() throws IOException {
    flush();
    file.getFD().sync();
  }

  @Override
  public boolean hasCapability(String capability) {
    return capability.equalsIgnoreCase(HSYNC);
  }

  /** Bring all to the disk, and close. IOException: not all of it is there; closed it is. The second time nothing. */
  @Override
  public void close() throws IOException {
    if (closed) {
      return;
    }
    closed = true;
    try (file) {
      hsync();
    }
  }
}
