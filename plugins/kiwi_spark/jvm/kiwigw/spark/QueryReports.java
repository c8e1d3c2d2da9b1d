package kiwigw.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Keeps what Spark tells of a query until the driver's Python asks for it.
 *
 * <p>Theory of operation. Spark tells the listeners of all queries one after the other, in one thread, from a queue of
 * 10,000 events that hold all settings of a session each. A listener in Python asks the JVM some sixty times about
 * every batch: with many small batches the queue fills, and the heap with it.
 */
public final class QueryReports extends StreamingQueryListener {
  private static final int KEPT = 1_000;

  private final BlockingQueue<Event> events = new ArrayBlockingQueue<>(KEPT);

  /**
   * Wait so long for a report at most. Returns all that there are of a run, by Spark's id, a line each: Spark's JSON of
   * a batch, `idle`, or `over`; an empty text if there is none. Of more than 1,000 the oldest were left out. (Of a run
   * that the session had before Spark may tell late.)
   */
  public String take(String run, long milliseconds) throws InterruptedException {
    Event first = events.poll(milliseconds, TimeUnit.MILLISECONDS);
    List<Event> found = new ArrayList<>();
    if (first != null) {
      found.add(first);
      events.drainTo(found);
    }
    return found.stream()
        .filter(event -> runOf(event).toString().equals(run))
        .map(QueryReports::line)
        .collect(Collectors.joining("\n"));
  }

  private static UUID runOf(Event event) {
    if (event instanceof QueryProgressEvent) {
      return ((QueryProgressEvent) event).progress().runId();
    }
    return event instanceof QueryTerminatedEvent
        ? ((QueryTerminatedEvent) event).runId()
        : ((QueryIdleEvent) event).runId();
  }

  private static String line(Event event) {
    if (event instanceof QueryProgressEvent) {
      return ((QueryProgressEvent) event).progress().json();
    }
    return event instanceof QueryTerminatedEvent ? "over" : "idle";
  }

  private void keep(Event event) {
    while (!events.offer(event)) {
      events.poll();
    }
  }

  @Override
  public void onQueryStarted(QueryStartedEvent event) {}

  @Override
  public void onQueryProgress(QueryProgressEvent event) {
    keep(event);
  }

  @Override
  public void onQueryIdle(QueryIdleEvent event) {
    keep(event);
  }

  @Override
  public void onQueryTerminated(QueryTerminatedEvent event) {
    keep(event);
  }
}
