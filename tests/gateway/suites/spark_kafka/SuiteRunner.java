package org.apache.spark.sql.kafka010;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.scalatest.Args;
import org.scalatest.ConfigMap;
import org.scalatest.DynaTags;
import org.scalatest.Filter;
import org.scalatest.Reporter;
import org.scalatest.Stopper;
import org.scalatest.Suite;
import org.scalatest.Tracker;
import org.scalatest.events.Event;
import org.scalatest.events.SuiteAborted;
import org.scalatest.events.TestCanceled;
import org.scalatest.events.TestFailed;
import org.scalatest.events.TestIgnored;
import org.scalatest.events.TestPending;
import org.scalatest.events.TestStarting;
import org.scalatest.events.TestSucceeded;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs selected tests of ScalaTest suites, and prints each result as it arrives.
 *
 * <p>A line is {@code @@}, an outcome, and the suite, the test and a reason in Base64, by tabs.
 * {@code list SUITE…} prints the names of the tests; {@code run FILE} runs the tests in a file
 * whose lines are a suite's class and a test in Base64.
 */
public final class SuiteRunner {
    private static final String SELECTED = "selected";

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("list")) {
            for (int index = 1; index < arguments.length; index++) {
                for (String test : CollectionConverters.asJava(suite(arguments[index]).testNames())) {
                    print("test", arguments[index], test, "");
                }
            }
        } else {
            Map<String, List<String>> selected = new LinkedHashMap<>();
            for (String line : Files.readAllLines(Path.of(arguments[1]))) {
                String[] parts = line.split("\t");
                String test = new String(Base64.getDecoder().decode(parts[1]));
                selected.computeIfAbsent(parts[0], each -> new ArrayList<>()).add(test);
            }
            selected.forEach(SuiteRunner::run);
        }
        System.exit(0); // threads of a suite that has failed may still run
    }

    private static Suite suite(String name) {
        try {
            return (Suite) Class.forName(name).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(name, error);
        }
    }

    private static void run(String name, List<String> tests) {
        Reporter reporter = event -> report(name, event);
        try {
            Suite suite = suite(name);
            Map<String, scala.collection.immutable.Set<String>> tags = new HashMap<>();
            scala.collection.immutable.Set<String> selected = set(List.of(SELECTED));
            tests.forEach(each -> tags.put(each, selected));
            Filter filter = new Filter(
                Option.apply(selected),
                set(List.of("org.scalatest.Ignore")),
                false,
                new DynaTags(map(Map.of()), map(Map.of(suite.suiteId(), map(tags)))));
            Args args = new Args(
                reporter,
                new NeverStopped(),
                filter,
                new ConfigMap(map(Map.of())),
                Option.empty(),
                new Tracker(new org.scalatest.events.Ordinal(0)),
                set(List.of()),
                false,
                Option.empty(),
                Option.empty());
            suite.run(Option.empty(), args).waitUntilCompleted();
        } catch (Throwable error) {
            print("aborted", name, "", text(error));
        }
    }

    /** Scala's `Stopper.default`, whose name Java does not allow. */
    private static final class NeverStopped implements Stopper {
        @Override
        public boolean stopRequested() {
            return false;
        }

        @Override
        public void requestStop() {}
    }

    private static void report(String suite, Event event) {
        if (event instanceof TestStarting each) {
            print("started", suite, each.testName(), "");
        } else if (event instanceof TestSucceeded each) {
            print("passed", suite, each.testName(), "");
        } else if (event instanceof TestFailed each) {
            String reason = each.throwable().isDefined() ? text(each.throwable().get()) : "";
            print("failed", suite, each.testName(), each.message() + "\n" + reason);
        } else if (event instanceof TestCanceled each) {
            print("canceled", suite, each.testName(), each.message());
        } else if (event instanceof TestPending each) {
            print("canceled", suite, each.testName(), "pending");
        } else if (event instanceof TestIgnored each) {
            print("ignored", suite, each.testName(), "");
        } else if (event instanceof SuiteAborted each) {
            String reason = each.throwable().isDefined() ? text(each.throwable().get()) : "";
            print("aborted", suite, "", each.message() + "\n" + reason);
        }
    }

    private static String text(Throwable error) {
        StringWriter written = new StringWriter();
        error.printStackTrace(new PrintWriter(written));
        return written.toString();
    }

    private static synchronized void print(String outcome, String suite, String test, String reason) {
        System.out.println(
            String.join("\t", "@@", outcome, suite, encoded(test), encoded(reason)));
        System.out.flush();
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes());
    }

    private static <T> scala.collection.immutable.Set<T> set(List<T> items) {
        return CollectionConverters.asScala(items).toSet();
    }

    private static <K, V> scala.collection.immutable.Map<K, V> map(Map<K, V> items) {
        return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(items));
    }
}
