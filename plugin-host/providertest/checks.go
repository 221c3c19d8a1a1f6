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
		{ID: "PROC-01", Level: level, Rule: "Started by hand, it says on standard error what it is and ends within 5 s with another status than 0.",
			Why: "People try it.", Run: r.byHand},
		{ID: "PROC-02", Level: level, Rule: "It calls itself what its file is called.",
			Why: "A configuration names the file and gets the provider.", After: []string{"META-02"}, Run: r.nameIsFiles},
		{ID: "PROC-03", Level: level, Rule: "Under the supervisor it starts, takes the kit's settings and gets ready.",
			Why: "This is how an agent runs it.", After: []string{"META-01", "SET-06", "SET-07", "PROC-02"}, Run: r.starts},
		{ID: "PROC-04", Level: level, Rule: "After the handshake line nothing is written on standard output.",
			Why: "The line is how host and provider find each other; whatever follows is thrown away.", After: signs, Run: r.stdoutIsQuiet},
		{ID: "PROC-05", Level: level, Rule: "Of the protocol versions 1 and one that nobody has, it chooses 1.",
			Why: "Later hosts offer more than it knows.", After: starts, Run: r.choosesKnown},
		{ID: "PROC-06", Level: level, Rule: "Where it has none of the versions offered, it ends within 5 s with another status than 0 and says why on standard error, or names the one that it has.",
			Why: "A provider that is too old must not look like one that hangs.", After: []string{"PROC-05"}, Run: r.refusesUnknown},
		{ID: "PROC-07", Level: level, Rule: "In each version that it speaks it signs.",
			Why: "The highest common version is used, and not only version 1.", After: append(signs, "PROC-05", "PROC-06"), Run: r.eachVersion},
		{ID: "PROC-08", Level: level, Rule: "Nobody reaches its socket without the certificate that the host has for this start.",
			Why: "Another process of the same user would have its names signed.", After: starts, Run: r.socketIsClosed},
		{ID: "PROC-09", Level: level, Rule: "Before it has settings it has no network socket.",
			Why: "`provider inspect` runs it on machines that reach no CA, and must not wait.", After: starts, Run: r.noNetwork},
		{ID: "PROC-10", Level: level, Rule: "Two processes of it at once both sign.",
			Why: "A reload has two for a moment.", After: signs, Run: r.sideBySide},
		{ID: "PROC-11", Level: level, Rule: "One that was killed while it signed is replaced, and the next signs.",
			Why: "What it had on its way must not keep the next from working.", After: signs, Run: r.killed},
		{ID: "PROC-12", Level: level, Rule: "One that was stopped (SIGSTOP) is replaced, and the next signs.",
			Why: "The host kills what does not answer and starts it again.", After: append(signs, "PROC-11"), Run: r.stopped},
		{ID: "PROC-13", Level: level, Rule: "When the lifeline ends, it is gone within five seconds, whatever is in flight.",
			Why: "A provider whose host was killed would sign on for nobody.", After: append(signs, "PROC-11"), Run: r.lifelineEnds},
		{ID: "PROC-14", Level: level, Rule: "After SIGTERM it is gone within 10 s.",
			Why: "An orderly stop must not need a kill.", After: starts, Run: r.terminated},
		{ID: "PROC-15", Level: level, Rule: "A reload while it signs fails no request.",
			Why: "Operators change settings while workloads start.", After: append(signs, "PROC-10"), Run: r.reloaded},
		{ID: "PROC-16", Level: level, Rule: "50 certificates leave 200 KiB on standard error at most.",
			Why: "The host drops what is more, and the one line that matters with it.", After: signs, Run: r.writesLittle},
		{ID: "PROC-17", Level: level, Rule: "A line on standard error has 8 KiB at most.",
			Why: "The host cuts it there.", After: signs, Run: r.linesAreShort},
		{ID: "PROC-18", Level: level, Rule: "50 certificates take no file descriptors for good.",
			Why: "In a week they would take all.", After: signs, Run: r.signingLeaksNothing},
		{ID: "PROC-19", Level: level, Rule: "20 settings in a row take no file descriptors for good.",
			Why: "Each reload would leave some behind.", After: []string{"PROC-03", "SET-17"}, Run: r.settingsLeakNothing},
		{ID: "PROC-20", Level: level, Rule: "No token appears in what it writes, in its environment or its command line.",
			Why: "Logs are kept and shared, and every process of the user can read the other two.", After: signs, Run: r.tokensStayInside},
		{ID: "PROC-21", Level: level, Rule: "No secret setting and no private key appears in what it writes, in its environment or its command line.",
			Why: "Logs are kept and shared, and every process of the user can read the other two.", After: signs, Run: r.secretsStayInside},
		{ID: "PROC-22", Level: level, Rule: "While what it writes is not read, it signs on: 20 certificates leave less than the 64 KiB that a pipe takes.",
			Why: "A host that is slow for a moment must not hold up every workload.", After: append(signs, "PROC-16"), Run: r.unread},
	}
}
