package sparklog;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/** The program that starts gateways, gateway_host.py; it ends with this process. */
final class GatewayHost {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static GatewayHost host;

    private final BufferedReader answers;
    private final Writer requests;

    private GatewayHost() throws IOException {
        Process process = new ProcessBuilder(System.getProperty("gateway.host").split(" "))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
        answers = process.inputReader();
        requests = process.outputWriter();
    }

    static synchronized void prepare(Map<String, Object> arguments) {
        ask(Map.of("prepare", arguments));
    }

    /** Starts gateways and returns their process ids when they listen. */
    static synchronized List<Integer> start(List<List<String>> arguments) {
        return JSON.convertValue(ask(Map.of("start", arguments)).get("pids"), JSON.getTypeFactory().constructCollectionType(List.class, Integer.class));
    }

    /** Ends a gateway with SIGTERM, after which it leaves the list of gateways, or with SIGKILL. */
    static synchronized void end(int pid, boolean gracefully) {
        ask(Map.of("end", pid, "signal", gracefully ? 15 : 9));
    }

    private static JsonNode ask(Object request) {
        try {
            if (host == null) {
                host = new GatewayHost();
            }
            host.requests.write(JSON.writeValueAsString(request) + "\n");
            host.requests.flush();
            JsonNode answer = JSON.readTree(host.answers.readLine());
            if (answer.has("error")) {
                throw new IllegalStateException(answer.get("error").asText());
            }
            return answer;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
