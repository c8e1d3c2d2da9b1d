package kiwigw.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Brings every row of a query in real time to the gateway as soon as there is one.
 *
 * <p>Rows are given out before the checkpoint knows of them, so a query that begins again repeats some. Each names the
 * record that it comes from and its number among the rows of that, and the gateway drops those that it has had. For
 * queries whose tasks run in this process.
 */
final class RealTimeWrite implements StreamingWrite {
  private final long run;

  RealTimeWrite(long run) {
    this.run = run;
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    SchedulerPool.realTime(SparkContext.getOrCreate());
    RowStream.of(run).begin();
    return new Factory(run);
  }

  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  /** Wait until the gateway has everything that this part of the query has made: only then is it noted as done. */
  @Override
  public void commit(long epoch, WriterCommitMessage[] messages) {
    RowStream.of(run).finish(epoch);
  }

  @Override
  public void abort(long epoch, WriterCommitMessage[] messages) {}

  private record Factory(long run) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
      return new Writer(RowStream.of(run).lane());
    }
  }

  private record Done() implements WriterCommitMessage {}

  private static final class Writer implements DataWriter<InternalRow> {
    /** Rows of one record at most. */
    private static final int MOST_ROWS = 1 << 20;

    private final RowStream.Lane lane;

    /** For the task of this thread, which has read nothing yet. */
    Writer(RowStream.Lane lane) {
      this.lane = lane;
      InputPlace.here().leave();
    }

    @Override
    public void write(InternalRow row) {
      InputPlace here = InputPlace.here();
      if (here.offset < 0) {
        throw new NoPlace();
      }
      int number = here.row++;
      if (number >= MOST_ROWS) {
        throw new TooLarge(
            String.format("one record of an input makes more than %,d rows, and they cannot be numbered", MOST_ROWS));
      }
      lane.put(row, here.input, here.partition, here.offset * MOST_ROWS + number);
    }

    @Override
    public WriterCommitMessage commit() {
      return new Done();
    }

    @Override
    public void abort() {}

    @Override
    public void close() {
      lane.close();
    }
  }
}
