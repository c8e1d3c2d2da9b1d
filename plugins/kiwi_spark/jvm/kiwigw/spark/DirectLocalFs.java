package kiwigw.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.AbstractFileSystem;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.BufferedFSInputStream;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.DataChecksum;
import org.apache.hadoop.util.Progressable;

/**
 * Files of this machine for Hadoop's FileContext, by system calls alone: where Spark keeps checkpoints, see
 * `fs.AbstractFileSystem.file.impl`.
 *
 * <p>Theory of operation. Hadoop's own (LocalFs) starts programs for permissions and links, which takes 100 times as
 * long as the work. Spark writes a checkpoint file under another name, closes it and renames it, and two queries on one
 * checkpoint are kept apart by a rename that fails where the target is there. Here a file is on the disk when its
 * stream is closed, its name is when a rename returns, and no two renames have the same target. A machine that stops
 * leaves every file whole or not there.
 *
 * <p>LocalFs keeps a checksum beside every file, `.x.crc` beside `x`, and Hadoop's FileSystem, by which Spark reads
 * some of the files, finds a file broken whose checksum is another's; a file without one is not checked. Here none are
 * written, looked at or listed. Before a file is written, replaced, renamed or deleted, the one beside it goes, so that
 * at no moment there is one that lies: checkpoints of LocalFs go on here, and those of here with LocalFs.
 *
 * <p>Methods raise what AbstractFileSystem says, also where nobody says so below.
 */
public final class DirectLocalFs extends AbstractFileSystem {
  private static final long BLOCK_BYTES = 32L * 1024 * 1024;
  private static final FsServerDefaults DEFAULTS =
      new FsServerDefaults(BLOCK_BYTES, 512, 64 * 1024, (short) 1, 4096, false, 0, DataChecksum.Type.NULL);

  /** Make one for `file:///`. Hadoop calls this. */
  DirectLocalFs(URI uri, Configuration conf) throws URISyntaxException {
    super(uri, "file", false, -1);
  }

  @Override
  public int getUriDefaultPort() {
    return -1;
  }

  /** Allow every name, as LocalFs does. */
  @Override
  public boolean isValidName(String name) {
    return true;
  }

  @Override
  public FsServerDefaults getServerDefaults() {
    return DEFAULTS;
  }

  @Override
  public FSDataOutputStream createInternal(
      Path file,
      EnumSet<CreateFlag> flags,
      FsPermission permission,
      int bufferBytes,
      short replication,
      long blockBytes,
      Progressable progress,
      ChecksumOpt checksum,
      boolean createParent)
      throws IOException {
    java.nio.file.Path there = local(file);
    if (createParent) {
      LocalFolders.make(there.getParent());
    } else {
      LocalFolders.check(there.getParent());
    }
    CreateFlag.validate(file, Files.exists(there), flags);
    LocalOutput out = LocalOutput.open(there, flags, LocalFolders.permissions(permission));
    return new FSDataOutputStream(out, statistics);
  }

  @Override
  public FSDataInputStream open(Path file, int bufferBytes) throws IOException {
    return new FSDataInputStream(new BufferedFSInputStream(LocalInput.open(local(file), statistics), bufferBytes));
  }

  /** Make a folder. createParent: also those above it; else they must be there. One that is there stays as it is. */
  @Override
  public void mkdir(Path folder, FsPermission permission, boolean createParent) throws IOException {
    java.nio.file.Path there = local(folder);
    if (createParent) {
      LocalFolders.make(there.getParent());
    } else {
      LocalFolders.check(there.getParent());
    }
    try {
      LocalFolders.makeOne(there, LocalFolders.permissions(permission));
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
  }

  /** Delete a file, or a folder. recursive: with all in it. Returns false where there is nothing. */
  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    java.nio.file.Path there = local(path);
    if (!Files.exists(there, LinkOption.NOFOLLOW_LINKS)) {
      return false;
    }
    try {
      if (recursive && Files.isDirectory(there, LinkOption.NOFOLLOW_LINKS)) {
        LocalFolders.deleteAll(there);
      } else {
        Checksums.forget(there);
        Files.delete(there);
      }
      return true;
    } catch (java.nio.file.NoSuchFileException gone) {
      return false;
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
  }

  @Override
  public void renameInternal(Path source, Path target) throws IOException {
    renameInternal(source, target, false);
  }

  @Override
  public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
    LocalRename.rename(local(source), local(target), overwrite);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    return status(local(path), path);
  }

  /** List what is in a folder, in the order of names, without checksums; of a file the file itself. */
  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    java.nio.file.Path there = local(path);
    FileStatus self = status(there, path);
    if (!self.isDirectory()) {
      return new FileStatus[] {self};
    }
    List<FileStatus> found = new ArrayList<>();
    try (DirectoryStream<java.nio.file.Path> names = Files.newDirectoryStream(there)) {
      for (java.nio.file.Path one : names) {
        addStatus(found, one, path);
      }
    } catch (java.nio.file.DirectoryIteratorException error) {
      throw FileErrors.of(error.getCause(), there);
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
    FileStatus[] all = found.toArray(new FileStatus[0]);
    Arrays.sort(all);
    return all;
  }

  private void addStatus(List<FileStatus> found, java.nio.file.Path one, Path folder) throws IOException {
    String name = one.getFileName().toString();
    if (Checksums.isOne(name)) {
      return;
    }
    try {
      found.add(status(one, new Path(folder, new Path(null, null, name))));
    } catch (FileNotFoundException gone) {
      // Deleted meanwhile, or a link to nothing.
    }
  }

  private FileStatus status(java.nio.file.Path there, Path path) throws IOException {
    try {
      PosixFileAttributes found = Files.readAttributes(there, PosixFileAttributes.class);
      return new FileStatus(
          found.size(),
          found.isDirectory(),
          1,
          BLOCK_BYTES,
          found.lastModifiedTime().toMillis(),
          found.lastAccessTime().toMillis(),
          LocalFolders.permission(found.permissions()),
          found.owner().getName(),
          found.group().getName(),
          makeQualified(path));
    } catch (IOException error) {
      IOException mapped = FileErrors.of(error, there);
      throw mapped instanceof ParentNotDirectoryException ? FileErrors.notFound(there) : mapped;
    }
  }

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    java.nio.file.Path there = local(path);
    try {
      Files.setPosixFilePermissions(there, LocalFolders.permissions(permission));
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
  }

  /** Set the owner and the group; either may be null and stays. IOException: there is no such user or group. */
  @Override
  public void setOwner(Path path, String user, String group) throws IOException {
    java.nio.file.Path there = local(path);
    UserPrincipalLookupService names = there.getFileSystem().getUserPrincipalLookupService();
    PosixFileAttributeView view = Files.getFileAttributeView(there, PosixFileAttributeView.class);
    try {
      if (user != null) {
        view.setOwner(names.lookupPrincipalByName(user));
      }
      if (group != null) {
        view.setGroup(names.lookupPrincipalByGroupName(group));
      }
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
  }

  /** Set both times, in milliseconds since 1970; a negative one stays. */
  @Override
  public void setTimes(Path path, long modified, long accessed) throws IOException {
    java.nio.file.Path there = local(path);
    try {
      Files.getFileAttributeView(there, PosixFileAttributeView.class).setTimes(time(modified), time(accessed), null);
    } catch (IOException error) {
      throw FileErrors.of(error, there);
    }
  }

  private static FileTime time(long millis) {
    return millis < 0 ? null : FileTime.fromMillis(millis);
  }

  @Override
  public BlockLocation[] getFileBlockLocations(Path path, long start, long length) throws IOException {
    FileStatus found = getFileStatus(path);
    if (start >= found.getLen()) {
      return new BlockLocation[0];
    }
    String[] here = {"localhost"};
    return new BlockLocation[] {new BlockLocation(new String[] {"localhost:9866"}, here, 0, found.getLen())};
  }

  @Override
  public FsStatus getFsStatus() throws IOException {
    java.nio.file.FileStore store = Files.getFileStore(java.nio.file.Path.of("/"));
    long all = store.getTotalSpace();
    return new FsStatus(all, all - store.getUnallocatedSpace(), store.getUsableSpace());
  }

  /** Do nothing: there is one of every file. */
  @Override
  public boolean setReplication(Path path, short replication) throws IOException {
    return getFileStatus(path).isFile();
  }

  /** Return null: there are none. */
  @Override
  public FileChecksum getFileChecksum(Path path) {
    return null;
  }

  /** Do nothing: there are no checksums. */
  @Override
  public void setVerifyChecksum(boolean verify) {}

  /** Return where a path is. IOException: the locale of this process has no such name. */
  private java.nio.file.Path local(Path path) throws IOException {
    String name = getUriPath(path);
    try {
      return java.nio.file.Path.of(name);
    } catch (java.nio.file.InvalidPathException error) {
      String encoding = System.getProperty("sun.jnu.encoding");
      throw new IOException(
          name + " is no name of a file where LC_ALL makes it " + encoding + "; C.UTF-8 allows all", error);
    }
  }
}
