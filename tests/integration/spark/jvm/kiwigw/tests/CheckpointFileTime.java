package kiwigw.tests;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * Prints the milliseconds that one checkpoint file takes, from `createAtomic` to the end of `close`: the median.
 *
 * <p>Arguments: file system, folder, how many files.
 */
final class CheckpointFileTime {
  private CheckpointFileTime() {}

  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration(false);
    conf.set("fs.AbstractFileSystem.file.impl", arguments[0]);
    Path folder = new Path(arguments[1]);
    CheckpointFileManager manager = CheckpointFileManager.create(folder, conf);
    manager.mkdirs(folder);
    long[] nanoseconds = new long[Integer.parseInt(arguments[2])];
    for (int number = 0; number < nanoseconds.length; number++) {
      long before = System.nanoTime();
      CancellableFSDataOutputStream out = manager.createAtomic(new Path(folder, Integer.toString(number)), false);
      out.write(new byte[500]);
      out.close();
      nanoseconds[number] = System.nanoTime() - before;
    }
    java.util.Arrays.sort(nanoseconds);
    System.out.printf("%.2f%n", nanoseconds[nanoseconds.length / 2] / 1e6);
  }
}
