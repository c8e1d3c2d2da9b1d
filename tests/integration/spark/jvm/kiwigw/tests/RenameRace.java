package kiwigw.tests;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * Two threads that write the same file as Spark does, in rounds, beside another process that does the same.
 *
 * <p>For every line with a name that comes in, both open the file, and `prepared` goes out; with the next line both
 * close it, and the numbers of those who were told that theirs is the file go out. Arguments: file system, folder,
 * what the numbers begin with.
 */
final class RenameRace {
  private final CheckpointFileManager manager;
  private final Path folder;
  private final String who;
  private final CyclicBarrier together = new CyclicBarrier(2);

  private RenameRace(String fileSystem, String folder, String who) {
    Configuration conf = new Configuration(false);
    conf.set("fs.AbstractFileSystem.file.impl", fileSystem);
    this.folder = new Path(folder);
    this.manager = CheckpointFileManager.create(this.folder, conf);
    this.who = who;
  }

  public static void main(String[] arguments) throws Exception {
    RenameRace race = new RenameRace(arguments[0], arguments[1], arguments[2]);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    ExecutorService threads = Executors.newFixedThreadPool(2);
    for (String name = lines.readLine(); name != null; name = lines.readLine()) {
      CancellableFSDataOutputStream first = race.open(name, 1);
      CancellableFSDataOutputStream second = race.open(name, 2);
      System.out.println("prepared");
      lines.readLine();
      Future<String> one = threads.submit(() -> race.close(first, 1));
      Future<String> two = threads.submit(() -> race.close(second, 2));
      System.out.println("won" + one.get() + two.get());
    }
    threads.shutdown();
  }

  private CancellableFSDataOutputStream open(String name, int thread) throws Exception {
    CancellableFSDataOutputStream out = manager.createAtomic(new Path(folder, name), false);
    out.writeBytes(who + thread);
    return out;
  }

  private String close(CancellableFSDataOutputStream out, int thread) throws Exception {
    together.await();
    try {
      out.close();
      return " " + who + thread;
    } catch (FileAlreadyExistsException error) {
      return "";
    }
  }
}
