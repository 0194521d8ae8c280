package sparklog;

import java.util.regex.Pattern;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Leaves out the runs of a test with groups of Streams (KIP-1071), which Kafka has on since 4.2.
 *
 * <p>A run's display name has the arguments of the test's method.
 */
public final class ClassicProtocol implements ExecutionCondition {
    private static final Pattern WITH_STREAMS_GROUPS =
        Pattern.compile("(?i:\\bstreams\\b(?!-)|protocol\\w*\\s*=\\s*true)");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        boolean isRun = context.getUniqueId().contains("test-template-invocation");
        return isRun && WITH_STREAMS_GROUPS.matcher(context.getDisplayName()).find()
            ? ConditionEvaluationResult.disabled("groups of Streams")
            : ConditionEvaluationResult.enabled("");
    }
}
