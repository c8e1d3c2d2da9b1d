package kiwigw.spark;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The connection on which the rows of one run go to the gateway, over its Unix socket.
 *
 * <p>The driver's Python opens and closes it, by the number of the run; the sinks of the query find it by that
 * number. One thread at a time sends, and one receives.
 */
public final class GatewayLink {
  private static final Map<Long, GatewayLink> LINKS = new ConcurrentHashMap<>();
  private static final int VERSION = 2;

  private final SocketChannel channel;
  private volatile long rows;

  private GatewayLink(SocketChannel channel) {
    this.channel = channel;
  }

  /** Connect to the gateway and say of which run the rows will be. IOException: it is not there. */
  public static void open(String socket, String token, long run) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      channel.connect(UnixDomainSocketAddress.of(Path.of(socket)));
      GatewayLink link = new GatewayLink(channel);
      MessagePack hello = new MessagePack("Hello", 3).put("version", VERSION).put("token", token);
      link.send(hello.put("role", Long.toString(run)).frame());
      LINKS.put(run, link);
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
  }

  /** End the connection of a run, also for a thread that waits in it. Does nothing where there is none. */
  public static void close(long run) throws IOException {
    GatewayLink link = LINKS.remove(run);
    if (link != null) {
      try {
        link.channel.close();
      } finally {
        RowStream.end(run);
        WholeBatchWrite.forget(run);
      }
    }
  }

  /** Return how many rows of a run were sent in batches. */
  public static long rows(long run) {
    return of(run).rows;
  }

  /** Count rows that were sent in a batch. */
  void count(long more) {
    rows += more;
  }

  /** Return the connection of a run. GatewayGone: it was closed. */
  static GatewayLink of(long run) {
    GatewayLink link = LINKS.get(run);
    if (link == null) {
      throw new GatewayGone("the run " + run + " is over", null);
    }
    return link;
  }

  /** Send a frame; waits while the gateway has no room for it. */
  void send(byte[] frame) {
    ByteBuffer left = ByteBuffer.wrap(frame);
    try {
      while (left.hasRemaining()) {
        channel.write(left);
      }
    } catch (IOException error) {
      throw new GatewayGone("the gateway takes no rows: " + error, error);
    }
  }

  /** Wait until the gateway says that it has taken a batch. */
  void awaitTaken(long batch) {
    byte[] wanted = new MessagePack("BatchTaken", 1).put("batch", batch).frame();
    ByteBuffer answer = ByteBuffer.allocate(wanted.length);
    try {
      while (answer.hasRemaining()) {
        if (channel.read(answer) < 0) {
          throw new GatewayGone("the gateway has not taken batch " + batch, null);
        }
      }
    } catch (IOException error) {
      throw new GatewayGone("the gateway has not taken batch " + batch + ": " + error, error);
    }
    if (!Arrays.equals(answer.array(), wanted)) {
      throw new GatewayGone("the gateway's answer to batch " + batch + " is none", null);
    }
  }
}
