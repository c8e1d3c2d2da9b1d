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
  private static final ThreadLocal<InputPlace> HERE = ThreadLocal.withInitial(InputPlace::new);

  /** The number of the input among those of the query. */
  int input;

  int partition;

  /** Below 0 at no record. */
  long offset;

  /** The number of the next row of this record. */
  int row;

  private InputPlace() {
    leave();
  }

  /** Be at no record. */
  void leave() {
    offset = -1;
    row = 0;
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
