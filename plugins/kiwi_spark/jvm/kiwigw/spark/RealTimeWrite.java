package kiwigw.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Brings every row of a query in real time to the gateway as soon as there is one.
 *
 * <p>Rows are given out before the checkpoint knows of them, so a query that begins again repeats some. Each names the
 * record that it comes from and its number among the rows of that, and the gateway drops those that it has had. For
 * queries whose tasks run in this process.
 */
final class RealTimeWrite implements StreamingWrite {
  private final long run;
  private final CaseInsensitiveStringMap options;

  RealTimeWrite(long run, CaseInsensitiveStringMap options) {
    this.run = run;
    this.options = options;
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    SparkContext spark = SparkContext.getOrCreate();
    SchedulerPool.realTime(spark);
    RowStream.of(run)
        .begin(
            () ->
                new LastRows(
                    options.get("inputs"),
                    options.get("lastRowsFolder"),
                    options.get("lastRows"),
                    spark.hadoopConfiguration()));
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
      RowStream stream = RowStream.of(run);
      return new Writer(stream.lane(), stream.lastRows());
    }
  }

  private record Done() implements WriterCommitMessage {}

  private static final class Writer implements DataWriter<InternalRow> {
    private final RowStream.Lane lane;
    private final LastRows lastRows;
    private int input;
    private int partition;

    /** The number of the last row; below 0 before there is one. */
    private long last = -1;

    /** For the task of this thread, which has read nothing yet. */
    Writer(RowStream.Lane lane, LastRows lastRows) {
      this.lane = lane;
      this.lastRows = lastRows;
      InputPlace.here().leave();
    }

    @Override
    public void write(InternalRow row) {
      InputPlace here = InputPlace.here();
      long number = here.next();
      if (here.partition != partition || here.input != input) {
        note();
      }
      input = here.input;
      partition = here.partition;
      last = number;
      lane.put(row, input, partition, number);
    }

    private void note() {
      if (last >= 0) {
        lastRows.made(input, partition, InputPlace.offset(last), InputPlace.row(last));
      }
    }

    @Override
    public WriterCommitMessage commit() {
      note();
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
