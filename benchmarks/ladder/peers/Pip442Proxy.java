package org.apache.pulsar.proxy.server;

// Row 06p of the ladder, a stand-in and not Pulsar's proxy: the published Java proxy 4.0.8 with topic lists under the published
// limiter of 4.2.4 (AsyncDualMemoryLimiter, TopicListMemoryLimiter, TopicListSizeResultCache). The order of permits is
// PIP-442's: estimate, heap permit, ask the broker, update the permit, direct permit, write.
// It lives in the proxy's package because ProxyConnection's pool and context are package-private.

import java.net.InetSocketAddress;
import java.net.URI;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import io.opentelemetry.api.OpenTelemetry;
import io.prometheus.client.CollectorRegistry;
import org.apache.pulsar.broker.authentication.AuthenticationService;
import org.apache.pulsar.broker.topiclistlimit.TopicListMemoryLimiter;
import org.apache.pulsar.broker.topiclistlimit.TopicListSizeResultCache;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.impl.ClientCnx;
import org.apache.pulsar.client.impl.auth.AuthenticationDisabled;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.CommandGetTopicsOfNamespace;
import org.apache.pulsar.common.api.proto.ServerError;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;
import org.apache.pulsar.common.lookup.GetTopicsResult;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.common.semaphore.AsyncDualMemoryLimiter.LimitType;

public class Pip442Proxy {
    static final class Lists extends LookupProxyHandler {
        private final ProxyConnection connection;
        private final InetSocketAddress broker;
        private final TopicListMemoryLimiter limiter;
        private final TopicListSizeResultCache sizes;

        Lists(ProxyService service, ProxyConnection connection, TopicListMemoryLimiter limiter,
              TopicListSizeResultCache sizes) {
            super(service, connection);
            URI url = URI.create(service.getConfiguration().getBrokerServiceURL());
            this.connection = connection;
            this.broker = InetSocketAddress.createUnresolved(url.getHost(), url.getPort());
            this.limiter = limiter;
            this.sizes = sizes;
        }

        @Override
        public void handleGetTopicsOfNamespace(CommandGetTopicsOfNamespace command) {
            long id = command.getRequestId();
            String namespace = command.getNamespace();
            CommandGetTopicsOfNamespace.Mode mode = command.getMode();
            String pattern = command.hasTopicsPattern() ? command.getTopicsPattern() : null;
            String hash = command.hasTopicsHash() ? command.getTopicsHash() : null;
            BooleanSupplier gone = () -> !connection.ctx().channel().isActive();
            TopicListSizeResultCache.ResultHolder size = sizes.getTopicListSize(namespace, mode);
            size.getSizeAsync().thenCompose(estimate ->
                limiter.withAcquiredPermits(estimate, LimitType.HEAP_MEMORY, gone,
                    permit -> ask(namespace, mode, pattern, hash)
                        .whenComplete((list, failure) -> { if (failure != null) size.resetIfInitializing(); })
                        .thenCompose(list -> {
                            long actual = TopicListMemoryLimiter.estimateTopicListSize(list.getNonPartitionedOrPartitionTopics());
                            size.updateSize(actual);
                            return limiter.withUpdatedPermits(permit, actual, gone,
                                updated -> answer(id, list, gone),
                                failure -> refused(id, "Failed due to heap memory limit exceeded"));
                        }),
                    failure -> {
                        size.resetIfInitializing();
                        return refused(id, "Failed due to heap memory limit exceeded");
                    }))
                .exceptionally(failure -> {
                    size.resetIfInitializing();
                    connection.ctx().writeAndFlush(Commands.newError(id, ServerError.ServiceNotReady, String.valueOf(failure.getMessage())));
                    return null;
                });
        }

        private CompletableFuture<GetTopicsResult> ask(String namespace, CommandGetTopicsOfNamespace.Mode mode,
                                                       String pattern, String hash) {
            return connection.getConnectionPool().getConnection(broker).thenCompose((ClientCnx broker) -> {
                long id = connection.newRequestId();
                CompletableFuture<GetTopicsResult> list = broker.newGetTopicsOfNamespace(
                    Commands.newGetTopicsOfNamespaceRequest(namespace, id, mode, pattern, hash), id);
                connection.getConnectionPool().releaseConnection(broker);
                return list;
            });
        }

        private CompletableFuture<Void> answer(long id, GetTopicsResult list, BooleanSupplier gone) {
            // The helper of 4.2.4 needs a method that Commands of 4.0.8 lacks; the order is the same: size, permit, bytes, write.
            // A command of its own, as in 4.2.4: that of 4.0.8's Commands is the thread's, which has the next list in it before a
            // permit is there, so that requests got each other's bytes and the client lost its place in the stream.
            BaseCommand command = new BaseCommand().setType(BaseCommand.Type.GET_TOPICS_OF_NAMESPACE_RESPONSE);
            command.setGetTopicsOfNamespaceResponse().setRequestId(id).addAllTopics(list.getNonPartitionedOrPartitionTopics())
                .setFiltered(list.isFiltered()).setChanged(list.isChanged());
            if (list.getTopicsHash() != null) {
                command.getGetTopicsOfNamespaceResponse().setTopicsHash(list.getTopicsHash());
            }
            return limiter.withAcquiredPermits(command.getSerializedSize(), LimitType.DIRECT_MEMORY, gone, permit -> {
                CompletableFuture<Void> written = new CompletableFuture<>();
                connection.ctx().writeAndFlush(Commands.serializeWithSize(command)).addListener(f -> written.complete(null));
                return written;
            }, failure -> refused(id, "Failed due to direct memory limit exceeded"));
        }

        private CompletableFuture<Void> refused(long id, String text) {
            connection.ctx().writeAndFlush(Commands.newError(id, ServerError.TooManyRequests, text));
            return CompletableFuture.completedFuture(null);
        }
    }

    private static long number(Properties properties, String key, long otherwise) {
        return Long.parseLong(properties.getProperty(key, String.valueOf(otherwise)).trim());
    }

    public static void main(String[] args) throws Exception {
        ProxyConfiguration config = PulsarConfigurationLoader.create(args[0], ProxyConfiguration.class);
        Properties all = new Properties();
        try (java.io.FileInputStream in = new java.io.FileInputStream(args[0])) { all.load(in); }
        String heap = "maxTopicListInFlightHeapMemSize", direct = "maxTopicListInFlightDirectMemSize";
        TopicListMemoryLimiter limiter = new TopicListMemoryLimiter(CollectorRegistry.defaultRegistry, "pulsar_proxy_",
            OpenTelemetry.noop().getMeter("standin"),
            number(all, heap + "MB", 100) << 20, (int) number(all, heap + "PermitsAcquireQueueSize", 10_000),
            number(all, heap + "PermitsAcquireTimeoutMillis", 25_000),
            number(all, direct + "MB", 100) << 20, (int) number(all, direct + "PermitsAcquireQueueSize", 10_000),
            number(all, direct + "PermitsAcquireTimeoutMillis", 25_000));
        TopicListSizeResultCache sizes = new TopicListSizeResultCache();
        AuthenticationService authentication = new AuthenticationService(PulsarConfigurationLoader.convertFrom(config));
        Authentication own = AuthenticationDisabled.INSTANCE;
        ProxyService service = new ProxyService(config, authentication, own) {
            @Override
            protected LookupProxyHandler newLookupProxyHandler(ProxyConnection connection) {
                return new Lists(this, connection, limiter, sizes);
            }
        };
        WebServer web = new WebServer(config, authentication);
        service.start();
        ProxyServiceStarter.addWebServerHandlers(web, config, service, service.getDiscoveryProvider(), own);
        web.start();
        System.out.println("stand-in serves " + config.getServicePort() + ", web " + config.getWebServicePort());
    }
}
