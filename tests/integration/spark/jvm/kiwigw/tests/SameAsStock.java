package kiwigw.tests;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.AbstractFileSystem;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options.CreateOpts;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Does the same to a folder of each of two file systems, and says where the results differ.
 *
 * <p>Arguments: one file system and its folder, another one and its folder, a seed, how many sequences of 20 steps.
 * Prints a line for every difference, and `compared N` at last.
 */
final class SameAsStock {
  private static final String[] NAMES = {
    "a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "a/below", "no/such", "with space", "uml\u00e4ut",
  };

  private final FileContext files;
  private final Path root;

  private SameAsStock(String fileSystem, String folder) throws Exception {
    Configuration conf = new Configuration(false);
    conf.set("fs.AbstractFileSystem.file.impl", fileSystem);
    files = FileContext.getFileContext(AbstractFileSystem.get(URI.create("file:///"), conf), conf);
    root = new Path(folder);
  }

  public static void main(String[] arguments) throws Exception {
    SameAsStock one = new SameAsStock(arguments[0], arguments[1]);
    SameAsStock other = new SameAsStock(arguments[2], arguments[3]);
    Random random = new Random(Long.parseLong(arguments[4]));
    int compared = 0;
    for (int sequence = 0; sequence < Integer.parseInt(arguments[5]); sequence++) {
      List<String> past = new ArrayList<>();
      one.empty();
      other.empty();
      for (int step = 0; step < 20; step++, compared++) {
        String[] words = step(random);
        past.add(String.join(" ", words));
        String first = one.result(words);
        String second = other.result(words);
        if (!first.equals(second)) {
          System.out.println(past + ": " + first + " <> " + second);
          break; // from here on they differ
        }
      }
    }
    System.out.println("compared " + compared);
  }

  private static String[] step(Random random) {
    String[] kinds = {"create", "create", "overwrite", "parents", "append", "mkdir", "mkdirs", "delete", "delete-all"};
    String[] more = {"rename", "rename", "replace", "replace", "status", "list", "list", "read", "change"};
    int kind = random.nextInt(kinds.length + more.length);
    String name = NAMES[random.nextInt(NAMES.length)];
    String other = NAMES[random.nextInt(NAMES.length)];
    return new String[] {kind < kinds.length ? kinds[kind] : more[kind - kinds.length], name, other};
  }

  private void empty() throws IOException {
    files.delete(root, true);
    files.mkdir(root, FsPermission.getDirDefault(), true);
  }

  private String result(String[] words) {
    try {
      return run(words[0], at(words[1]), at(words[2]));
    } catch (ParentNotDirectoryException error) {
      return "ParentNotDirectoryException";
    } catch (FileAlreadyExistsException error) {
      return "FileAlreadyExistsException";
    } catch (FileNotFoundException error) {
      return "FileNotFoundException";
    } catch (IOException error) {
      return "IOException";
    }
  }

  private Path at(String name) {
    return new Path(root, new Path(null, null, name));
  }

  private String run(String kind, Path path, Path other) throws IOException {
    switch (kind) {
      case "create" -> write(path, EnumSet.of(CreateFlag.CREATE));
      case "overwrite" -> onto(path, EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE));
      case "append" -> onto(path, EnumSet.of(CreateFlag.APPEND));
      case "parents" -> withParents(path);
      case "mkdir" -> files.mkdir(path, new FsPermission((short) 0750), false);
      case "mkdirs" -> files.mkdir(path, FsPermission.getDirDefault(), true);
      case "rename" -> files.rename(path, other);
      case "replace" -> replace(path, other);
      case "change" -> change(path);
      default -> {
        return look(kind, path);
      }
    }
    return "done";
  }

  private String look(String kind, Path path) throws IOException {
    return switch (kind) {
      case "delete" -> Boolean.toString(files.delete(path, false));
      case "delete-all" -> Boolean.toString(files.delete(path, true));
      case "status" -> of(files.getFileStatus(path)) + files.util().exists(path);
      case "read" -> read(path);
      default -> list(path);
    };
  }

  private void write(Path path, EnumSet<CreateFlag> flags, CreateOpts... options) throws IOException {
    try (FSDataOutputStream out = files.create(path, flags, options)) {
      out.writeBytes("what " + path.getName() + " has");
    }
  }

  /** Of a folder there LocalFs does not say what Hadoop's contract says. */
  private void onto(Path path, EnumSet<CreateFlag> flags) throws IOException {
    boolean folder = files.util().exists(path) && files.getFileStatus(path).isDirectory();
    try {
      write(path, flags);
    } catch (FileAlreadyExistsException | FileNotFoundException error) {
      throw folder ? new IOException(error) : error;
    }
  }

  /** Of a file above it LocalFs says less exactly what it is. */
  private void withParents(Path path) throws IOException {
    try {
      write(path, EnumSet.of(CreateFlag.CREATE), CreateOpts.createParent());
    } catch (ParentNotDirectoryException error) {
      throw new FileAlreadyExistsException(error.getMessage());
    }
  }

  /** LocalFs deletes an empty folder that is to be replaced, and only then finds that none can be moved into itself. */
  private void replace(Path path, Path other) throws IOException {
    try {
      files.rename(path, other, Rename.OVERWRITE);
    } catch (IOException error) {
      if (other.toString().startsWith(path + "/") && isEmptyFolder(other)) {
        files.delete(other, false); // DirectLocalFs leaves it; the steps that follow are to find the same in both
      }
      throw error;
    }
  }

  private boolean isEmptyFolder(Path path) throws IOException {
    return files.util().exists(path) && list(path).equals("[]");
  }

  /** Where nothing is, LocalFs does not say what the contract says. */
  private void change(Path path) throws IOException {
    if (files.util().exists(path)) {
      files.setPermission(path, new FsPermission((short) 0640));
      files.setTimes(path, 1_000_000L, 2_000_000L);
    }
  }

  /** Reads as a whole, and at places, forwards and backwards. */
  private String read(Path path) throws IOException {
    try (FSDataInputStream in = files.open(path)) {
      String all = new String(in.readAllBytes(), StandardCharsets.UTF_8) + in.getPos();
      in.seek(2);
      byte[] two = new byte[2];
      in.readFully(0, two);
      return all + (char) in.read() + (char) two[0] + (char) two[1] + in.getPos() + in.skip(1) + in.getPos();
    }
  }

  private String list(Path path) throws IOException {
    List<String> found = new ArrayList<>();
    for (FileStatus one : files.util().listStatus(path)) {
      found.add(of(one));
    }
    found.sort(null);
    return found.toString();
  }

  /** What is known of a file, without the time (but one that was set) and the folder of the file system. */
  private String of(FileStatus one) {
    String name = one.getPath().toString().replace(files.makeQualified(root).toString(), "");
    String time = one.getModificationTime() == 1_000_000L ? " old" : "";
    return name + " " + one.isDirectory() + " " + (one.isFile() ? one.getLen() : 0) + " " + one.getPermission() + time
        + " " + one.getOwner() + " " + one.getGroup() + " " + one.getReplication() + " " + one.isSymlink() + ";";
  }
}
