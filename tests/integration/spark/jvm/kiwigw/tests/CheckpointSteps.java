package kiwigw.tests;

import java.io.FileNotFoundException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Does with a folder what a file says, line by line, as Spark does with a checkpoint; says after each how it went.
 *
 * <p>A line: `mkdirs NAME`, `delete NAME`, `cancel NAME LINES`, `create NAME LINES` (not where one is), `replace NAME
 * LINES`. A file written by line 7 has the text `7` on so many lines. Arguments: file system, folder, file.
 */
final class CheckpointSteps {
  private final CheckpointFileManager manager;
  private final Path folder;

  private CheckpointSteps(String fileSystem, String folder) {
    Configuration conf = new Configuration(false);
    conf.set("fs.AbstractFileSystem.file.impl", fileSystem);
    this.folder = new Path(folder);
    this.manager = CheckpointFileManager.create(this.folder, conf);
  }

  public static void main(String[] arguments) throws Exception {
    CheckpointSteps steps = new CheckpointSteps(arguments[0], arguments[1]);
    List<String> lines = Files.readAllLines(java.nio.file.Path.of(arguments[2]));
    for (int number = 0; number < lines.size(); number++) {
      System.out.println(number + " " + steps.result(number, lines.get(number).split(" ")));
      System.out.flush();
    }
  }

  private String result(int number, String[] words) throws Exception {
    try {
      run(number, words);
      return "done";
    } catch (FileAlreadyExistsException error) {
      return "exists";
    } catch (FileNotFoundException error) {
      return "missing";
    }
  }

  private void run(int number, String[] words) throws Exception {
    Path there = new Path(folder, words[1]);
    switch (words[0]) {
      case "mkdirs" -> manager.mkdirs(there);
      case "delete" -> manager.delete(there);
      default -> write(number, words[0], there, Integer.parseInt(words[2]));
    }
  }

  private void write(int number, String how, Path there, int lines) throws Exception {
    CheckpointFileManager.CancellableFSDataOutputStream out = manager.createAtomic(there, how.equals("replace"));
    byte[] line = (number + "\n").getBytes(StandardCharsets.US_ASCII);
    for (int written = 0; written < lines; written++) {
      out.write(line);
    }
    if (how.equals("cancel")) {
      out.cancel();
    } else {
      out.close();
    }
  }
}
