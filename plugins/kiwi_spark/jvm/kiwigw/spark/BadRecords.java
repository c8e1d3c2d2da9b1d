package kiwigw.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.udf;
import static org.apache.spark.sql.functions.when;

import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.function.Supplier;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.AccumulatorV2;

/**
 * Counts the records of an input that could not be decoded, and keeps one of them to be shown.
 *
 * <p>Spark's own way (`Dataset.observe`) has every micro-batch planned with an aggregation of its own, which takes
 * longer than all else that a small batch does. An accumulator costs a call for each record, and brings what tasks on
 * other machines have counted, too.
 */
public final class BadRecords extends AccumulatorV2<String, Long> {
  private static final long serialVersionUID = 1L;

  /** Characters of a record that are kept, so that it can be told what of it does not fit. */
  private static final int KEPT = 16_384;

  private long count;
  private String sample = "";

  /** Return one for an input. Its counts come to this process as tasks end. */
  public static BadRecords open(String input) {
    BadRecords records = new BadRecords();
    SparkContext.getOrCreate().register(records, "bad records of " + input);
    return records;
  }

  /**
   * Have the records of a frame counted whose column `_bad` is true, and leave them out if `drop`. Those have the
   * columns `_partition`, `_offset` and `_value`; text: whether the value is shown as text, else in hex.
   */
  public Dataset<Row> counted(Dataset<Row> frame, boolean drop, boolean text) {
    BadRecords records = this;
    UserDefinedFunction look =
        udf(
                (UDF3<Integer, Long, byte[], Boolean>)
                    (partition, offset, value) -> {
                      records.add(
                          () -> "partition " + partition + " offset " + offset + ": " + kept(value, text));
                      return !drop;
                    },
                DataTypes.BooleanType)
            .asNondeterministic();
    Column kept = look.apply(col("_partition"), col("_offset"), col("_value"));
    return frame.filter(when(col("_bad"), kept).otherwise(true));
  }

  private static String kept(byte[] value, boolean text) {
    if (value == null) {
      return "";
    }
    String all = text ? new String(value, StandardCharsets.UTF_8) : HexFormat.of().withUpperCase().formatHex(value);
    return all.substring(0, all.offsetByCodePoints(0, Math.min(KEPT, all.codePointCount(0, all.length()))));
  }

  /** Return what was counted since the last call: the number, a space, and one of the records. */
  public synchronized String take() {
    String found = count + " " + sample;
    reset();
    return found;
  }

  @Override
  public synchronized boolean isZero() {
    return count == 0;
  }

  @Override
  public synchronized AccumulatorV2<String, Long> copy() {
    BadRecords other = new BadRecords();
    other.count = count;
    other.sample = sample;
    return other;
  }

  @Override
  public synchronized void reset() {
    count = 0;
    sample = "";
  }

  @Override
  public void add(String record) {
    add(() -> record);
  }

  private synchronized void add(Supplier<String> record) {
    sample = count == 0 ? record.get() : sample;
    count++;
  }

  @Override
  public synchronized void merge(AccumulatorV2<String, Long> other) {
    BadRecords more = (BadRecords) other;
    sample = count == 0 ? more.sample : sample;
    count += more.count;
  }

  @Override
  public synchronized Long value() {
    return count;
  }
}
