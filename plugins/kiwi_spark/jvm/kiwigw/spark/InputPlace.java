package kiwigw.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.udf;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataTypes;

/**
 * Which record of an input the task of this thread is working on.
 *
 * <p>Theory of operation. A query in real time has one stage: a task takes a record of its partition, and what becomes
 * of it (no row, one, or several) reaches the sink in the same thread before the task takes the next one. No operator
 * that Spark allows there gathers records. So right behind the source a filter that lets everything pass notes where
 * each record is, and the sink knows where a row comes from, whatever the query has done with its columns. The filter
 * is not deterministic, so that the optimiser moves nothing past it.
 */
public final class InputPlace {
  /** Rows of one record at most. */
  private static final int MOST_ROWS = 1 << 20;

  private static final ThreadLocal<InputPlace> HERE = ThreadLocal.withInitial(InputPlace::new);

  /** The number of the input among those of the query. */
  int input;

  int partition;

  /** Below 0 at no record. */
  private long offset;

  private int row;

  private InputPlace() {
    leave();
  }

  /** Be at no record. */
  void leave() {
    offset = -1;
    row = 0;
  }

  /** Number the next row of this record: it is above that of every row before it in the partition. */
  long next() {
    if (offset < 0) {
      throw new NoPlace();
    }
    if (row >= MOST_ROWS) {
      throw new TooLarge(
          String.format("one record of an input makes more than %,d rows, and they cannot be numbered", MOST_ROWS));
    }
    return number(offset, row++);
  }

  /** Return the number of a row. */
  static long number(long offset, long row) {
    return offset * MOST_ROWS + row;
  }

  /** Return the offset in a number. */
  static long offset(long number) {
    return number / MOST_ROWS;
  }

  /** Return the row in a number. */
  static long row(long number) {
    return number % MOST_ROWS;
  }

  /** Return that of this thread. */
  static InputPlace here() {
    return HERE.get();
  }

  /** Have the places of an input's records noted. records: with the columns `partition` and `offset` of Kafka. */
  public static Dataset<Row> tracked(Dataset<Row> records, int input) {
    UserDefinedFunction note =
        udf(
                (UDF2<Integer, Long, Boolean>)
                    (partition, offset) -> {
                      InputPlace here = HERE.get();
                      here.input = input;
                      here.partition = partition;
                      here.offset = offset;
                      here.row = 0;
                      return true;
                    },
                DataTypes.BooleanType)
            .asNondeterministic();
    return records.filter(note.apply(col("partition"), col("offset")));
  }
}
