package kiwigw.spark;

/** A row comes from no record of an input, so that it cannot be numbered: trying again makes the same. */
public final class NoPlace extends RuntimeException {
  private static final long serialVersionUID = 1L;

  NoPlace() {
    super(
        "the query cannot run in real time: a row of it comes from no record of an input."
            + " Give it a `trigger` with `processing_time`");
  }
}
