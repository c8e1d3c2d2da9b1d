package kiwigw.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Writes every row of a query whose rows have places to a Kafka topic, as soon as there is one (`TopicLink`).
 *
 * <p>For queries whose tasks run in this process.
 */
final class TopicWrite implements StreamingWrite {
  private final long run;
  private final String query;
  private final boolean realTime;
  private String pool = "";

  /** query: Spark's id. realTime: whether the query runs in real time, else in micro-batches. */
  TopicWrite(long run, String query, boolean realTime) {
    this.run = run;
    this.query = query;
    this.realTime = realTime;
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    SparkContext context = SparkContext.getOrCreate();
    if (realTime) {
      SchedulerPool.realTime(context);
    } else {
      pool = SchedulerPool.begin(context);
    }
    String group = context.getLocalProperty("spark.jobGroup.id");
    TopicLink.of(run).begin(() -> context.cancelJobGroup(group));
    return new Factory(run, query);
  }

  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  /** Wait until the topic has everything that this part of the query has made: only then is it noted as done. */
  @Override
  public void commit(long epoch, WriterCommitMessage[] messages) {
    end();
    TopicLink.of(run).finish();
  }

  @Override
  public void abort(long epoch, WriterCommitMessage[] messages) {
    end();
  }

  private void end() {
    if (!realTime) {
      SchedulerPool.end(SparkContext.getOrCreate(), pool);
    }
  }

  private record Factory(long run, String query) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
      return new Writer(TopicLink.of(run), query);
    }
  }

  private record Done() implements WriterCommitMessage {}

  private static final class Writer implements DataWriter<InternalRow> {
    private final TopicLink link;
    private final String query;

    /** For the task of this thread, which has read nothing yet. */
    Writer(TopicLink link, String query) {
      this.link = link;
      this.query = query;
      InputPlace.here().leave();
    }

    @Override
    public void write(InternalRow row) {
      link.put(row, query);
    }

    @Override
    public WriterCommitMessage commit() {
      return new Done();
    }

    @Override
    public void abort() {}

    @Override
    public void close() {}
  }
}
