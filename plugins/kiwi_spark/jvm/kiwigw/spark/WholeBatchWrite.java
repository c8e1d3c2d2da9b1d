package kiwigw.spark;

import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Brings the rows of every micro-batch to the gateway, and holds Spark until they were taken.
 *
 * <p>Theory of operation. A batch counts as a whole or not at all (see `gateway/batches.py`). Each task packs its rows
 * into messages, and they come to the driver as what the task has committed, from other machines too. When all are
 * there, `commit` sends them and waits for the gateway's answer. That wait is the backpressure: Spark begins no other
 * batch before it. The size of a batch has a bound, which all tasks of this machine share, so that it is refused
 * before the memory is used up; it is never cut.
 */
final class WholeBatchWrite implements StreamingWrite {
  private static final int PART = 1024 * 1024;

  private final long run;
  private final String query;
  private final long most;
  private String pool = "";

  WholeBatchWrite(long run, String query, long most) {
    this.run = run;
    this.query = query;
    this.most = most;
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    pool = SchedulerPool.begin(SparkContext.getOrCreate());
    return new Factory(run, most);
  }

  @Override
  public void commit(long batch, WriterCommitMessage[] messages) {
    SchedulerPool.end(SparkContext.getOrCreate(), pool);
    long rows = 0;
    long size = 0;
    for (WriterCommitMessage message : messages) {
      rows += ((Packed) message).rows;
      size += ((Packed) message).size;
    }
    if (size > most) {
      throw TooLarge.batch(most);
    }
    GatewayLink link = GatewayLink.of(run);
    MessagePack begin = new MessagePack("BeginBatch", 3).put("query", query).put("batch", batch);
    link.send(begin.put("timestamp", System.currentTimeMillis()).frame());
    for (WriterCommitMessage message : messages) {
      for (byte[] part : ((Packed) message).parts) {
        link.send(part);
      }
    }
    link.send(new MessagePack("EndBatch", 1).put("rows", rows).frame());
    link.awaitTaken(batch);
    link.count(rows);
  }

  @Override
  public void abort(long batch, WriterCommitMessage[] messages) {
    SchedulerPool.end(SparkContext.getOrCreate(), pool);
  }

  /** Forget what tasks of a run hold: it is over. */
  static void forget(long run) {
    Held.BY_RUN.remove(run);
  }

  /** Return it as the write of a result that is computed once: batch 0. */
  BatchWrite once() {
    WholeBatchWrite outer = this;
    return new BatchWrite() {
      @Override
      public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        return (Factory) outer.createStreamingWriterFactory(info);
      }

      @Override
      public void commit(WriterCommitMessage[] messages) {
        outer.commit(0, messages);
      }

      @Override
      public void abort(WriterCommitMessage[] messages) {
        outer.abort(0, messages);
      }
    };
  }

  /** The rows of one task, as messages. */
  private static final class Packed implements WriterCommitMessage {
    private static final long serialVersionUID = 1L;

    final long rows;
    final long size;
    final ArrayList<byte[]> parts;

    Packed(long rows, long size, ArrayList<byte[]> parts) {
      this.rows = rows;
      this.size = size;
      this.parts = parts;
    }
  }

  private static final class Factory implements StreamingDataWriterFactory, DataWriterFactory {
    private static final long serialVersionUID = 1L;

    private final long run;
    private final long most;

    Factory(long run, long most) {
      this.run = run;
      this.most = most;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
      return new Writer(most, Held.by(run, epoch));
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return createWriter(partition, task, 0);
    }
  }

  /** Bytes that the tasks of a batch hold together in this process: of the last batch of every run. */
  private record Held(long epoch, AtomicLong bytes) {
    private static final Map<Long, Held> BY_RUN = new ConcurrentHashMap<>();

    static AtomicLong by(long run, long epoch) {
      return BY_RUN.compute(
              run, (key, held) -> held != null && held.epoch == epoch ? held : new Held(epoch, new AtomicLong()))
          .bytes;
    }
  }

  private static final class Writer implements DataWriter<InternalRow> {
    private final long most;
    private final AtomicLong held;
    private final Rows gathered = new Rows(false);
    private ArrayList<byte[]> parts = new ArrayList<>();
    private long rows;
    private long size;

    Writer(long most, AtomicLong held) {
      this.most = most;
      this.held = held;
    }

    @Override
    public void write(InternalRow row) {
      int weight = Rows.weight(row);
      if (weight > Rows.MAX_MESSAGE - Rows.OVERHEAD) {
        throw TooLarge.row(weight);
      }
      if (!gathered.hasRoomFor(row, PART)) {
        seal();
      }
      gathered.add(row, 0);
      size += weight;
      if (held.addAndGet(weight) > most) {
        throw TooLarge.batch(most);
      }
    }

    private void seal() {
      rows += gathered.count();
      parts.add(gathered.seal(new MessagePack("BatchRows", 1)));
    }

    @Override
    public WriterCommitMessage commit() {
      if (gathered.count() > 0) {
        seal();
      }
      return new Packed(rows, size, parts);
    }

    @Override
    public void abort() {
      held.addAndGet(-size);
      size = 0;
    }

    @Override
    public void close() {
      parts = new ArrayList<>();
    }
  }
}
