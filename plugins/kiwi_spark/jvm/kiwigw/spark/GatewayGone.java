package kiwigw.spark;

/** The gateway does not take rows any more: the run is over, or the gateway is. */
public final class GatewayGone extends RuntimeException {
  private static final long serialVersionUID = 1L;

  GatewayGone(String message, Throwable cause) {
    super(message, cause);
  }
}
