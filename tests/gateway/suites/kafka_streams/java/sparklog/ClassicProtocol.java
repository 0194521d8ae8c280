package sparklog;

import java.lang.reflect.Method;
import java.util.regex.Pattern;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;

/** Leaves out the runs of a test with groups of Streams (KIP-1071), which Kafka has on since 4.2. */
public final class ClassicProtocol implements InvocationInterceptor {
    private static final Pattern WITH_STREAMS_GROUPS =
        Pattern.compile("\\bstreams\\b(?!-)|(?i:protocol\\w*\\s*=\\s*true)");

    @Override
    public void interceptTestTemplateMethod(
        Invocation<Void> invocation, ReflectiveInvocationContext<Method> method, ExtensionContext context
    ) throws Throwable {
        boolean isNamed = WITH_STREAMS_GROUPS.matcher(context.getDisplayName()).find();
        if (isNamed || method.getArguments().contains("streams")) {
            invocation.skip();
        } else {
            invocation.proceed();
        }
    }
}
