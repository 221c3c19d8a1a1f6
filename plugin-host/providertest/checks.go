package providertest

import (
	"slices"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// processChecks are those that need a process.
func processChecks(r *rig) []conformance.Check {
	const level = conformance.Behaviour
	starts := []string{"PROC-03"}
	signs := slices.Clip(append(starts, "SIGN-01", "SIGN-04", "SIGN-20"))
	return []conformance.Check{
		{ID: "PROC-01", Level: level, Rule: "Started by hand, it prints what it is to standard error and exits within 5 s with a nonzero status.",
			Why: "People try it.", Run: r.byHand},
		{ID: "PROC-02", Level: level, Rule: "Its name is that of its file.",
			Why: "A configuration names the file and gets the provider.", After: []string{"META-02"}, Run: r.nameIsFiles},
		{ID: "PROC-03", Level: level, Rule: "Under the supervisor it starts, accepts the kit's settings and becomes ready.",
			Why: "This is how an agent runs it.", After: []string{"META-01", "SET-06", "SET-07", "PROC-02"}, Run: r.starts},
		{ID: "PROC-04", Level: level, Rule: "After the handshake line it writes nothing to standard output.",
			Why: "The host reads only that line; it discards everything else.", After: signs, Run: r.stdoutIsQuiet},
		{ID: "PROC-05", Level: level, Rule: "If the host offers protocol version 1 and an unknown one, it chooses 1.",
			Why: "Later hosts offer more versions than it supports.", After: starts, Run: r.choosesKnown},
		{ID: "PROC-06", Level: level, Rule: "If it supports none of the offered versions, it exits within 5 s with a nonzero status and an error on standard error, or names the version it supports.",
			Why: "A provider that is too old must not look like one that hangs.", After: []string{"PROC-05"}, Run: r.refusesUnknown},
		{ID: "PROC-07", Level: level, Rule: "It signs in each version that it supports.",
			Why: "The host uses the highest common version, not only version 1.", After: append(signs, "PROC-05", "PROC-06"), Run: r.eachVersion},
		{ID: "PROC-08", Level: level, Rule: "No client can use its socket without the certificate that the host created for this start.",
			Why: "Otherwise any process of the same user could get names signed.", After: starts, Run: r.socketIsClosed},
		{ID: "PROC-09", Level: level, Rule: "It opens no network socket before it has settings.",
			Why: "`provider inspect` runs it on machines without access to the CA, and must not wait.", After: starts, Run: r.noNetwork},
		{ID: "PROC-10", Level: level, Rule: "Two concurrent processes of it both sign.",
			Why: "A reload briefly runs two.", After: signs, Run: r.sideBySide},
		{ID: "PROC-11", Level: level, Rule: "If it is killed while it signs, its replacement signs the next request.",
			Why: "Requests in flight must not block the replacement.", After: signs, Run: r.killed},
		{ID: "PROC-12", Level: level, Rule: "If it is stopped (SIGSTOP), it is replaced, and the replacement signs the next request.",
			Why: "The host kills and restarts a process that does not answer.", After: append(signs, "PROC-11"), Run: r.stopped},
		{ID: "PROC-13", Level: level, Rule: "It exits within five seconds after the lifeline closes, whatever is in flight.",
			Why: "Otherwise a provider whose host was killed keeps running without use.", After: append(signs, "PROC-11"), Run: r.lifelineEnds},
		{ID: "PROC-14", Level: level, Rule: "It exits within 10 s after SIGTERM.",
			Why: "A graceful stop must not need SIGKILL.", After: starts, Run: r.terminated},
		{ID: "PROC-15", Level: level, Rule: "A reload while it signs fails no request.",
			Why: "Operators change settings while workloads start.", After: append(signs, "PROC-10"), Run: r.reloaded},
		{ID: "PROC-16", Level: level, Rule: "It writes at most 200 KiB to standard error for 50 certificates.",
			Why: "The host drops the rest, possibly including the one line that matters.", After: signs, Run: r.writesLittle},
		{ID: "PROC-17", Level: level, Rule: "A line on standard error has at most 8 KiB.",
			Why: "The host cuts it there.", After: signs, Run: r.linesAreShort},
		{ID: "PROC-18", Level: level, Rule: "50 certificates leak no file descriptors.",
			Why: "Otherwise it runs out of them within a week.", After: signs, Run: r.signingLeaksNothing},
		{ID: "PROC-19", Level: level, Rule: "20 consecutive changes of settings leak no file descriptors.",
			Why: "Otherwise each reload leaks some.", After: []string{"PROC-03", "SET-17"}, Run: r.settingsLeakNothing},
		{ID: "PROC-20", Level: level, Rule: "No token appears in its output, its environment or its command line.",
			Why: "Logs are kept and shared, and every process of the user can read the other two.", After: signs, Run: r.tokensStayInside},
		{ID: "PROC-21", Level: level, Rule: "No secret setting and no private key appears in its output, its environment or its command line.",
			Why: "Logs are kept and shared, and every process of the user can read the other two.", After: signs, Run: r.secretsStayInside},
		{ID: "PROC-22", Level: level, Rule: "It keeps signing while its output is not read: 20 certificates produce less than the 64 KiB that fit into a pipe.",
			Why: "A host that is slow for a moment must not block every workload.", After: append(signs, "PROC-16"), Run: r.unread},
	}
}
