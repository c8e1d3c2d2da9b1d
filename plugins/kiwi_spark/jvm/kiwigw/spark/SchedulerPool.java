package kiwigw.spark;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.Schedulable;
import org.apache.spark.scheduler.SchedulingMode;

/**
 * Serves what the thread of a batch runs as one that has come now.
 *
 * <p>Theory of operation. When more queries are busy than there are cores, Spark's FAIR scheduler compares pools: the
 * one that runs fewer tasks is served first, and where they run equally many, the one whose name comes first in the
 * alphabet. With few cores they nearly always do, as the core that becomes free is one that has just finished a task:
 * with a pool for every query, those with the last names are served only when all others have nothing to do. So every
 * batch has a pool of its own, and these are named in the order in which batches begin: among equals the batch that
 * has waited longest is served first, and the next batch of a query comes behind those that the others have begun
 * meanwhile.
 *
 * <p>Spark keeps a pool for ever once it has seen its name, and sorts all of them whenever a core is free. So a pool is
 * taken away again when its batch is over.
 */
public final class SchedulerPool {
  private static final String PROPERTY = "spark.scheduler.pool";
  private static final AtomicLong NUMBERS = new AtomicLong();

  private static final String REAL_TIME = "real time";

  private SchedulerPool() {}

  /**
   * Have what this thread begins served before all batches: a task in real time that waits for a thread until others
   * have done theirs reads nothing meanwhile.
   */
  public static synchronized void realTime(SparkContext context) {
    Pool root = context.taskScheduler().rootPool();
    if (root.getSchedulableByName(REAL_TIME) == null) {
      root.addSchedulable(new Pool(REAL_TIME, SchedulingMode.FIFO(), Integer.MAX_VALUE, 1));
    }
    context.setLocalProperty(PROPERTY, REAL_TIME);
  }

  /** Give the batch that this thread begins a pool; returns its name. */
  public static String begin(SparkContext context) {
    // Digits enough for a thousand years of a thousand batches a second: names are compared as text.
    String name = String.format("batch %014d", NUMBERS.getAndIncrement());
    context.setLocalProperty(PROPERTY, name);
    return name;
  }

  /** Take the pool of a batch that is over away, if Spark has made it. */
  public static void end(SparkContext context, String name) {
    context.setLocalProperty(PROPERTY, null);
    Pool root = context.taskScheduler().rootPool();
    Schedulable pool = root.getSchedulableByName(name);
    if (pool != null) {
      root.removeSchedulable(pool);
    }
  }
}
