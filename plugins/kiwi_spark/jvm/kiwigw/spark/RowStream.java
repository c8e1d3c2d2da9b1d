package kiwigw.spark;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Sends the rows of one run as they come.
 *
 * <p>Theory of operation. Each task puts its rows into a lane of its own; one thread sends what is in the lanes, lane
 * after lane. While it sends, more gathers: with few rows each goes at once and alone, with many they go in large
 * pieces. A lane holds about a megabyte; when the gateway takes nothing, tasks wait for room, and Spark reads no
 * further. The thread sleeps when the lanes are empty, and ends with the connection.
 */
final class RowStream implements Runnable {
  private static final int LANE_BYTES = 1024 * 1024;
  private static final Map<Long, RowStream> STREAMS = new ConcurrentHashMap<>();

  private final long run;
  private final GatewayLink link;
  private final Set<Lane> lanes = ConcurrentHashMap.newKeySet();
  private final Thread sender;
  private LastRows lastRows;
  private volatile boolean asleep;
  private volatile RuntimeException failure;

  private RowStream(long run) {
    this.run = run;
    this.link = GatewayLink.of(run);
    this.sender = new Thread(this, "rows of run " + run);
    this.sender.setDaemon(true);
  }

  /** Return that of a run; its thread is started with it. */
  static RowStream of(long run) {
    return STREAMS.computeIfAbsent(
        run,
        number -> {
          RowStream stream = new RowStream(number);
          stream.sender.start();
          return stream;
        });
  }

  /** End the thread of a run, if there is one. */
  static void end(long run) {
    RowStream stream = STREAMS.remove(run);
    if (stream != null) {
      stream.fail(new GatewayGone("the run " + run + " is over", null));
    }
  }

  /** Return where the last rows are noted, once the query has begun to read. */
  LastRows lastRows() {
    return lastRows;
  }

  /** Open a lane for a task. */
  Lane lane() {
    Lane lane = new Lane();
    lanes.add(lane);
    return lane;
  }

  /** Say that the query has begun to read. No task puts any rows meanwhile. known: for the first time. */
  void begin(Supplier<LastRows> known) {
    if (lastRows == null) {
      lastRows = known.get();
    }
    link.send(new MessagePack("BeginEpoch", 0).frame());
  }

  /** Wait until all rows that were put are sent, and the gateway has taken them. No task puts any meanwhile. */
  void finish(long epoch) {
    for (Lane lane : lanes) {
      lane.awaitEmpty();
    }
    check();
    link.send(new MessagePack("EndEpoch", 1).put("epoch", epoch).frame());
    link.awaitTaken(epoch);
    lastRows.keep(epoch);
  }

  @Override
  public void run() {
    try {
      while (failure == null) {
        asleep = true;
        boolean sent = sendAll();
        if (!sent && asleep) {
          LockSupport.park(this);
        }
      }
    } catch (RuntimeException error) {
      fail(error);
    }
  }

  private boolean sendAll() {
    boolean sent = false;
    for (Lane lane : lanes) {
      byte[] frame = lane.take();
      if (frame != null) {
        asleep = false;
        link.send(frame);
        lane.sent();
        sent = true;
      }
    }
    return sent;
  }

  private void fail(RuntimeException error) {
    failure = error;
    for (Lane lane : lanes) {
      lane.wake();
    }
    LockSupport.unpark(sender);
  }

  private void check() {
    RuntimeException error = failure;
    if (error != null) {
      throw new GatewayGone("the rows of run " + run + " are not taken: " + error.getMessage(), error);
    }
  }

  /** The rows of one task that are not sent yet. All have one input and one partition. */
  final class Lane {
    private Rows rows = new Rows(true);
    private int input;
    private int partition;
    private boolean sending;
    private boolean closed;

    /** Add a row; waits for room. GatewayGone: nothing is sent any more. */
    synchronized void put(InternalRow row, int ofInput, int ofPartition, long place) {
      int weight = Rows.weight(row);
      if (weight > Rows.MAX_MESSAGE - Rows.OVERHEAD) {
        throw TooLarge.row(weight);
      }
      check();
      while (rows.count() > 0 && (ofPartition != partition || ofInput != input || !rows.hasRoomFor(row, LANE_BYTES))) {
        pause();
      }
      input = ofInput;
      partition = ofPartition;
      rows.add(row, place);
      if (asleep) {
        asleep = false;
        LockSupport.unpark(sender);
      }
    }

    /** Take the rows as a message; null if there are none. `sent` is called when they are on their way. */
    private synchronized byte[] take() {
      if (rows.count() == 0) {
        return null;
      }
      MessagePack head = new MessagePack("PlacedRows", 4).put("input", input).put("partition", partition);
      byte[] frame = rows.seal(head.put("timestamp", System.currentTimeMillis()));
      sending = true;
      notifyAll();
      return frame;
    }

    private synchronized void sent() {
      sending = false;
      notifyAll();
      if (closed && rows.count() == 0) {
        lanes.remove(this);
      }
    }

    private synchronized void awaitEmpty() {
      while (rows.count() > 0 || sending) {
        pause();
      }
    }

    private void pause() {
      check();
      try {
        wait();
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw new GatewayGone("stopped while rows waited for the gateway", error);
      }
      check();
    }

    private synchronized void wake() {
      notifyAll();
    }

    /** Say that nothing more will be put. */
    synchronized void close() {
      closed = true;
      if (rows.count() == 0 && !sending) {
        lanes.remove(this);
      }
    }
  }
}
