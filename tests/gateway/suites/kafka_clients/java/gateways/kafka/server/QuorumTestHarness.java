package kafka.server;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.MockFaultHandler;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;

import kafka.integration.KafkaServerTestHarness;
import kafka.utils.TestInfoUtils;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

import sparklog.GatewayCluster;
import sparklog.NotApplicable;

/**
 * The base of Kafka's integration tests in Scala: it starts gateways instead of the controller and
 * the brokers that Kafka's class of this name starts. It has to come before that class on the class
 * path.
 */
public abstract class QuorumTestHarness implements kafka.utils.Logging {
    private final MockFaultHandler faultHandler = new MockFaultHandler("gateways");
    private String logIdent = "";
    private TestInfo testInfo;
    private GatewayCluster cluster;

    @BeforeEach
    public void setUp(TestInfo testInfo) {
        this.testInfo = testInfo;
        if (testInfo.getDisplayName().contains("isTV2Enabled=false")) {
            throw new NotApplicable("It asks for transaction.version=1: gateways have one level of it.");
        }
    }

    @AfterEach
    public void tearDown() {
        if (cluster != null) {
            cluster.stop();
        }
    }

    /** Returns a gateway; those of all brokers start with the first one. */
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        if (cluster == null) {
            start(CollectionConverters.asJava(((KafkaServerTestHarness) this).configs()));
        }
        KafkaBroker broker = cluster.brokers().get(config.brokerId());
        if (broker.isShutdown() && startup) {
            broker.startup();
        }
        return broker;
    }

    private void start(List<KafkaConfig> configs) {
        Map<Integer, Map<String, String>> properties = new HashMap<>();
        for (KafkaConfig each : configs) {
            Map<String, String> own = new HashMap<>();
            each.originals().forEach((key, value) -> own.put(key, String.valueOf(value)));
            properties.put(each.brokerId(), own);
        }
        SecurityProtocol protocol = ((KafkaServerTestHarness) this).securityProtocol();
        if (protocol != SecurityProtocol.PLAINTEXT) {
            throw new NotApplicable("It speaks " + protocol + ", with stores of keys and users in Java's formats.");
        }
        cluster = new GatewayCluster(
            ClusterConfig.defaultBuilder().setBrokers(configs.size()).setPerServerProperties(properties).build(), true);
        configs.forEach(each -> cluster.setConfig(each.brokerId(), each));
        cluster.start();
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    // What a root does not have.

    public ControllerServer controllerServer() {
        throw new NotApplicable("It asks for a controller: gateways have none.");
    }

    public scala.collection.Seq<ControllerServer> controllerServers() {
        return CollectionConverters.asScala(new ArrayList<ControllerServer>()).toSeq();
    }

    public void shutdownKRaftController() {
        controllerServer();
    }

    public void addFormatterSettings(Formatter formatter) {
    }

    public scala.collection.Seq<java.util.Properties> kraftControllerConfigs(TestInfo testInfo) {
        return CollectionConverters.asScala(List.of(new java.util.Properties())).toSeq();
    }

    public scala.collection.Seq<SecurityProtocol> extraControllerSecurityProtocols() {
        return CollectionConverters.asScala(new ArrayList<SecurityProtocol>()).toSeq();
    }

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public MetadataVersion metadataVersion() {
        return MetadataVersion.latestTesting();
    }

    public QuorumImplementation implementation() {
        throw new NotApplicable("It asks for a controller: gateways have none.");
    }

    public void implementation_$eq(QuorumImplementation implementation) {
        implementation();
    }

    public MockFaultHandler faultHandler() {
        return faultHandler;
    }

    public QuorumTestHarnessFaultHandlerFactory faultHandlerFactory() {
        return new QuorumTestHarnessFaultHandlerFactory(faultHandler);
    }

    // What tests ask about themselves.

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils.maybeGroupProtocolSpecified(testInfo);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        return maybeGroupProtocolSpecified().get();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersAll();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersClassicGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersClassicGroupProtocolOnly();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersConsumerGroupProtocolOnly();
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String ident) {
        logIdent = ident;
    }
}
