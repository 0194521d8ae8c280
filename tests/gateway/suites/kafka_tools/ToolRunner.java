import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools in one JVM, which starts once and not for each command.
 *
 * Each line of stdin is a command: {"tool": class, "arguments": [...], "given": its stdin}. Each is
 * answered with one line: {"status": its exit status, "stdout": ..., "stderr": ...}.
 */
public class ToolRunner {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Ends a tool in the place of the JVM. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private final ByteArrayOutputStream stdout = new ByteArrayOutputStream();
    private final ByteArrayOutputStream stderr = new ByteArrayOutputStream();
    private final List<Runnable> hooks = new ArrayList<>();
    private Map<String, Object> result;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        var input = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        for (String line : (Iterable<String>) new BufferedReader(input).lines()::iterator) {
            answers.println(JSON.writeValueAsString(new ToolRunner().run(JSON.readTree(line))));
            answers.flush();
        }
    }

    private Map<String, Object> run(JsonNode command) throws Exception {
        // A tool may catch what ends it, and write of that: its result is that of its first exit.
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setIn(new ByteArrayInputStream(command.get("given").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(stdout, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(stderr, true, StandardCharsets.UTF_8));
        String[] arguments = JSON.convertValue(command.get("arguments"), String[].class);
        try {
            Class<?> tool = Class.forName(command.get("tool").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            finish(0);
        } catch (InvocationTargetException error) {
            if (result == null) {
                error.getCause().printStackTrace();
                finish(1);
            }
        }
        return result;
    }

    private void end(int status) {
        finish(status);
        throw new Ended();
    }

    private synchronized void finish(int status) {
        if (result == null) {
            hooks.forEach(Runnable::run);
            System.out.flush();
            System.err.flush();
            result = Map.of(
                "status", status,
                "stdout", stdout.toString(StandardCharsets.UTF_8),
                "stderr", stderr.toString(StandardCharsets.UTF_8));
        }
    }
}
