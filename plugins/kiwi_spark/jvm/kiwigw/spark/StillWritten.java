package kiwigw.spark;

/** Another process writes the rows of the query: it has to end before this one may. */
public final class StillWritten extends RuntimeException {
  private static final long serialVersionUID = 1L;

  StillWritten() {
    super("another process writes the results of the query, with the same checkpoint");
  }
}
