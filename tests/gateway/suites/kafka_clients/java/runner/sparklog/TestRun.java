package sparklog;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs tests with JUnit, and prints a JSON object for each test method as it ends: test, outcome,
 * reason, ms. A method that runs with several configs fails if it fails with one of them.
 *
 * <p>{@code TestRun list JAR FOLDER} prints the names of all tests in a folder of a jar, and {@code TestRun run FILE}
 * runs those that the file names: {@code package.Class#method}, one a line.
 */
public final class TestRun implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What a gateway says, and a client, to a test that asks for something that it does not have. */
    private static final Map<String, String> REFUSALS = Map.of(
        "does not support the STREAMS group protocol", "It asks for a streams group (KIP-1071).",
        "does not support the share group protocol", "It asks for a share group (KIP-932).",
        "The node does not support UPDATE_FEATURES", "It changes features of Kafka's brokers.",
        "configs of the resource type", "It alters configs of groups, loggers or client metrics.",
        "are given when it starts; alter those", "It alters configs of one broker: those of a gateway are given when it starts.",
        "quotas are those of client ids alone", "It sets quotas of users: quotas are those of client ids.",
        "there is no quota", "It sets a quota that the log does not have.");

    private final PrintStream out = System.out;
    private final Map<String, Outcome> outcomes = new HashMap<>();
    private TestPlan plan;
    private long begunNs;

    private record Outcome(String outcome, String reason) {
        static final Outcome PASSED = new Outcome("passed", "");

        /** Returns the outcome of two runs: one that is not applicable says nothing about the other. */
        Outcome and(Outcome other) {
            return outcome.equals("failed") || other.outcome.equals("not applicable") ? this : other;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Launcher launcher = LauncherFactory.create();
        if (arguments[0].equals("list")) {
            List<? extends DiscoverySelector> classes = classes(arguments[1], arguments[2]).stream().map(each -> selectClass(each)).toList();
            TestPlan plan = launcher.discover(request(classes));
            plan.accept(new TestPlan.Visitor() {
                @Override
                public void visit(TestIdentifier test) {
                    test.getSource().filter(MethodSource.class::isInstance).map(MethodSource.class::cast)
                        .ifPresent(method -> System.out.println(method.getClassName() + "#" + method.getMethodName()));
                }
            });
        } else {
            List<? extends DiscoverySelector> methods = Files.readAllLines(Path.of(arguments[1])).stream().map(each -> found(each)).toList();
            launcher.execute(request(methods), new TestRun());
        }
        System.exit(0); // whatever threads tests have left
    }

    private static LauncherDiscoveryRequest request(List<? extends DiscoverySelector> selectors) {
        return LauncherDiscoveryRequestBuilder.request()
            .selectors(selectors)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.default", System.getProperty("test.timeout", "240 s"))
            .build();
    }

    private static List<Class<?>> classes(String jar, String folder) throws IOException, ClassNotFoundException {
        List<Class<?>> found = new java.util.ArrayList<>();
        try (JarFile file = new JarFile(jar)) {
            for (String name : (Iterable<String>) file.stream().map(Object::toString).sorted()::iterator) {
                if (name.startsWith(folder) && name.endsWith("Test.class")) {
                    Class<?> type = Class.forName(name.replace(".class", "").replace('/', '.'));
                    if (!Modifier.isAbstract(type.getModifiers())) {
                        found.add(type);
                    }
                }
            }
        }
        return found;
    }

    /** Returns a selector of a method with its parameters, which the name does not have. */
    private static DiscoverySelector found(String name) {
        String[] parts = name.split("#");
        try {
            for (Class<?> type = Class.forName(parts[0]); type != null; type = type.getSuperclass()) {
                for (java.lang.reflect.Method each : type.getDeclaredMethods()) {
                    if (each.getName().equals(parts[1]) && !each.isSynthetic() && each.getAnnotations().length > 0) {
                        return selectMethod(Class.forName(parts[0]), each);
                    }
                }
            }
        } catch (ClassNotFoundException error) {
            throw new IllegalArgumentException(name, error);
        }
        throw new IllegalArgumentException(name);
    }

    @Override
    public void testPlanExecutionStarted(TestPlan testPlan) {
        plan = testPlan;
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (isMethod(test)) {
            begunNs = System.nanoTime();
        }
        if (test.isTest()) {
            NotApplicable.forget();
        }
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        if (isMethod(test)) {
            print(test, new Outcome("not applicable", "Kafka's own runs leave it out: " + reason));
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        TestIdentifier method = isMethod(test) ? test : plan.getParent(test).filter(TestRun::isMethod).orElse(null);
        if (method == null) {
            result.getThrowable().ifPresent(error -> print(test, of(error)));
            return;
        }
        String id = method.getUniqueId();
        if (test.isTest() || result.getThrowable().isPresent()) {
            outcomes.merge(id, result.getThrowable().map(TestRun::of).orElse(Outcome.PASSED), Outcome::and);
        }
        if (isMethod(test)) {
            print(test, outcomes.getOrDefault(id, Outcome.PASSED));
        }
    }

    private static boolean isMethod(TestIdentifier test) {
        return test.getSource().filter(MethodSource.class::isInstance).isPresent()
            && (test.isContainer() || !test.getUniqueId().contains("test-template-invocation"));
    }

    private static Outcome of(Throwable error) {
        NotApplicable asked = NotApplicable.latest();
        if (asked != null) {
            return new Outcome("not applicable", asked.getMessage());
        }
        if (error instanceof ClassCastException && String.valueOf(error.getMessage()).contains("cannot be cast to class kafka.server.BrokerServer")) {
            return new Outcome("not applicable", "It asks for the inside of a broker: BrokerServer.");
        }
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        for (Map.Entry<String, String> each : REFUSALS.entrySet()) {
            if (text.toString().contains(each.getKey())) {
                return new Outcome("not applicable", each.getValue());
            }
        }
        return new Outcome("failed", text.toString());
    }

    private void print(TestIdentifier test, Outcome outcome) {
        String name = test.getSource().filter(MethodSource.class::isInstance).map(MethodSource.class::cast)
            .map(method -> method.getClassName() + "#" + method.getMethodName())
            .orElse(test.getDisplayName());
        long ms = (System.nanoTime() - begunNs) / 1_000_000;
        try {
            out.println("\n" + JSON.writeValueAsString(Map.of("test", name, "outcome", outcome.outcome(), "reason", outcome.reason(), "ms", ms)));
            out.flush();
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
