package kiwigw.spark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The sink that brings the rows of a query to the gateway, or to its topic: `format("kiwigw.spark.GatewaySink")`.
 *
 * <p>Rows have two columns, `key` and `value`, JSON text. Options: `run`, the number of the run, whose connection is
 * open (`GatewayLink`, `TopicLink`); `batchBytes`, most bytes of a batch of results; `realTime`, `true` where rows are
 * sent as they come; `toTopic`, `true` where they have places and go to a topic; `query`, what the gateway knows the
 * query by, where no stream has an id (a result of tables).
 */
public final class GatewaySink implements TableProvider {
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType().add("key", "string").add("value", "string");
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Results();
  }

  private static final class Results implements SupportsWrite {
    @Override
    public String name() {
      return "the gateway";
    }

    @Override
    public StructType schema() {
      return new StructType();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(
          TableCapability.STREAMING_WRITE,
          TableCapability.BATCH_WRITE,
          TableCapability.TRUNCATE,
          TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Builder(info);
    }
  }

  /** Takes rows that were changed and whole results like any others: events are what they all become. */
  private static final class Builder implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
    private final LogicalWriteInfo info;

    Builder(LogicalWriteInfo info) {
      this.info = info;
    }

    @Override
    public WriteBuilder truncate() {
      return this;
    }

    @Override
    public Write build() {
      CaseInsensitiveStringMap options = info.options();
      long run = options.getLong("run", -1);
      boolean realTime = options.getBoolean("realTime", false);
      boolean toTopic = options.getBoolean("toTopic", false);
      if (realTime || toTopic) {
        return new Write() {
          @Override
          public StreamingWrite toStreaming() {
            return toTopic ? new TopicWrite(run, info.queryId(), realTime) : new RealTimeWrite(run, options);
          }
        };
      }
      String query = options.getOrDefault("query", info.queryId());
      WholeBatchWrite write = new WholeBatchWrite(run, query, options.getLong("batchBytes", Long.MAX_VALUE));
      return new Write() {
        @Override
        public StreamingWrite toStreaming() {
          return write;
        }

        @Override
        public BatchWrite toBatch() {
          return write.once();
        }
      };
    }
  }
}
