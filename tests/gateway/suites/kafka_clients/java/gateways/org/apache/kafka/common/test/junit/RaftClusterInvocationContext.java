package org.apache.kafka.common.test.junit;

import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import sparklog.GatewayCluster;

/**
 * One run of a test: on gateways, instead of the brokers and controllers that Kafka's class of this
 * name starts. It has to come before that class on the class path.
 */
public final class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private static final Set<String> SEEN = new HashSet<>();

    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int index) {
        return name + " [" + index + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        GatewayCluster cluster = new GatewayCluster(config, isCombined);
        return List.of(
            (ExecutionCondition) context -> {
                // A gateway is no controller: the test is not run twice for the two kinds of brokers.
                String run = context.getRequiredTestClass().getName() + name + config.displayTags()
                    + config.serverProperties() + config.perServerOverrideProperties() + config.features();
                String method = context.getRequiredTestMethod().getName();
                return SEEN.add(run + method) ? ConditionEvaluationResult.enabled("") : ConditionEvaluationResult.disabled("same");
            },
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }
}
