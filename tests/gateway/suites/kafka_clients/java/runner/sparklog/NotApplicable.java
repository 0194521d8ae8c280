package sparklog;

/** A test asks for something that the log does not have by design. */
public final class NotApplicable extends UnsupportedOperationException {
    private static volatile NotApplicable latest;

    /** @param what what the test asks for, as a sentence. */
    public NotApplicable(String what) {
        super(what);
        latest = this;
    }

    /** Returns the last one since the last call of {@link #forget}; null if there was none. */
    static NotApplicable latest() {
        return latest;
    }

    static void forget() {
        latest = null;
    }
}
