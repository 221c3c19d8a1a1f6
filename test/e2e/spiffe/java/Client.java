import com.nimbusds.jwt.SignedJWT;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.spiffe.exception.JwtSvidException;
import io.spiffe.svid.jwtsvid.JwtSvid;
import io.spiffe.svid.x509svid.X509Svid;
import io.spiffe.workloadapi.DefaultJwtSource;
import io.spiffe.workloadapi.DefaultWorkloadApiClient;
import io.spiffe.workloadapi.JwtSource;
import io.spiffe.workloadapi.JwtSourceOptions;
import io.spiffe.workloadapi.Watcher;
import io.spiffe.workloadapi.WorkloadApiClient;
import io.spiffe.workloadapi.X509Context;
import io.spiffe.workloadapi.grpc.SpiffeWorkloadAPIGrpc;
import io.spiffe.workloadapi.grpc.Workload.JWTBundlesRequest;
import io.spiffe.workloadapi.grpc.Workload.X509SVIDRequest;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * A workload that has its identity by the library java-spiffe, from the socket that is the first
 * argument. It prints lines of JSON, as client.py does.
 */
public final class Client {
    public static void main(String[] args) throws Exception {
        switch (args.length > 1 ? args[1] : "") {
            case "jwt" -> followJwt(args[0], args[2]);
            case "refused" -> refused(args[0], args[2]);
            default -> follow(args[0]);
        }
    }

    private static WorkloadApiClient agent(String socket) throws Exception {
        return DefaultWorkloadApiClient.newClient(
                DefaultWorkloadApiClient.ClientOptions.builder().spiffeSocketPath(socket).build());
    }

    /** Returns at once; the client's threads go on. */
    private static void follow(String socket) throws Exception {
        agent(socket).watchX509Context(new Watcher<X509Context>() {
            @Override
            public void onUpdate(X509Context context) {
                try {
                    tell(context);
                } catch (Exception e) {
                    onError(e);
                }
            }

            @Override
            public void onError(Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
    }

    private static void tell(X509Context context) throws Exception {
        X509Svid svid = context.getDefaultSvid();
        List<String> roots = new ArrayList<>();
        var bundle = context.getX509BundleSet().getBundleForTrustDomain(svid.getSpiffeId().getTrustDomain());
        for (X509Certificate root : bundle.getX509Authorities()) {
            roots.add(hex(root));
        }
        System.out.printf("{\"id\":\"%s\",\"leaf\":\"%s\",\"roots\":%s}%n", svid.getSpiffeId(), hex(svid.getLeaf()), list(roots));
    }

    private static String hex(X509Certificate certificate) throws Exception {
        return HexFormat.of().formatHex(certificate.getEncoded());
    }

    /** Writes strings that need no escapes. */
    private static String list(Collection<String> items) {
        return items.stream().map(item -> '"' + item + '"').collect(Collectors.joining(",", "[", "]"));
    }

    private static void followJwt(String socket, String audience) throws Exception {
        JwtSource source = DefaultJwtSource.newSource(JwtSourceOptions.builder().spiffeSocketPath(socket).build());
        WorkloadApiClient agent = agent(socket);
        for (JwtSvid first = null; ; Thread.sleep(200)) {
            try {
                JwtSvid svid = source.fetchJwtSvid(audience);
                first = first == null ? svid : first;
                tell(source, agent, svid, first, audience);
            } catch (JwtSvidException e) { // the agent may be away
                tell(Status.fromThrowable(e));
            }
        }
    }

    private static void tell(Status status) {
        System.out.printf("{\"code\":%d}%n", status.getCode().value());
    }

    private static void tell(JwtSource source, WorkloadApiClient agent, JwtSvid svid, JwtSvid first, String audience) throws Exception {
        var keys = source.getBundleForTrustDomain(svid.getSpiffeId().getTrustDomain()).getJwtAuthorities().keySet();
        System.out.printf(
                "{\"id\":\"%s\",\"key\":\"%s\",\"keys\":%s,\"takers\":%s,\"takers_of_first\":%s,\"takers_for_another\":%s}%n",
                svid.getSpiffeId(),
                SignedJWT.parse(svid.getToken()).getHeader().getKeyID(),
                list(keys),
                list(takers(source, agent, svid, audience)),
                list(takers(source, agent, first, audience)),
                list(takers(source, agent, svid, "another")));
    }

    private interface Verifier {
        void verify() throws Exception;
    }

    private static List<String> takers(JwtSource source, WorkloadApiClient agent, JwtSvid svid, String audience) {
        List<String> takers = new ArrayList<>();
        if (succeeds(() -> JwtSvid.parseAndValidate(svid.getToken(), source, Set.of(audience)))) {
            takers.add("library");
        }
        if (isTaken(() -> agent.validateJwtSvid(svid.getToken(), audience))) {
            takers.add("agent");
        }
        return takers;
    }

    private static boolean succeeds(Verifier verifier) {
        try {
            verifier.verify();
            return true;
        } catch (Exception e) {
            return false;
        }
    }

    /** Says what the agent says: the library looks at the audience, too. */
    private static boolean isTaken(Verifier agent) {
        try {
            agent.verify();
            return true;
        } catch (Exception e) {
            return !(e.getCause() instanceof StatusRuntimeException);
        }
    }

    private static void refused(String socket, String call) {
        Channel channel = Grpc.newChannelBuilder(socket, InsecureChannelCredentials.create()).build();
        var stub = SpiffeWorkloadAPIGrpc.newBlockingStub(channel).withWaitForReady();
        try {
            switch (call) {
                case "FetchX509SVID" -> stub.fetchX509SVID(X509SVIDRequest.getDefaultInstance()).next();
                case "FetchJWTBundles" -> stub.fetchJWTBundles(JWTBundlesRequest.getDefaultInstance()).next();
                default -> throw new IllegalArgumentException(call);
            }
        } catch (StatusRuntimeException e) {
            tell(e.getStatus());
        }
    }
}
