// Package folder serves listeners, routes, clusters, endpoints and a name table out of a
// folder of files: Envoy's own resources in YAML or JSON. Call [New], give
// [Folder.Types] to the server of package discovery, and [Folder.Run] follows the folder.
//
// # Files
//
// All that end in .yaml, .yml or .json are read, but for hidden ones and those in folders
// below. A file holds one document, or several with "---" between them. A document is
//
//   - a resource with "@type", as Envoy writes it;
//   - or one or more of: "resources:", a list of such (a file of Envoy's filesystem
//     discovery; "version_info" is not looked at); "static_resources:" with "listeners"
//     and "clusters", out of a bootstrap; "hosts:", the names of the name table; and, in
//     the first document only, "for:".
//
// Fields are those of protobuf's JSON, as they are or in lowerCamelCase, and no others.
// Each "@type" must be of Envoy's API version 3 without contrib. Resources are held to
// Envoy's own rules, what stands in an Any as well.
//
// "hosts:" has a host name for each key, and "ips", "registry", "shortname" and
// "namespace" below it, as Istio's NameTable has.
//
// # Whom a file is for
//
// Everyone that the server admits, or whom "for:" says: each key that stands there must
// match, by one of its entries.
//
//	for:
//	  trust_domains: [example.org]
//	  spiffe_ids: ["spiffe://example.org/ns/*/sa/gateway"]
//	  namespaces: [ingress]
//	  service_accounts: [ingress/gateway]
//	  clusters: [east]
//	  node_ids: ["gateway-*"]
//	  labels: {app: gateway}
//
// The first four are of the verified identity, and clusters is of the one that this
// identity may be in. node_ids and labels are what a client says of itself: they narrow
// and give no right, so that beside them another key, or "anyone: true", is required.
// A namespace is that of any trust domain that the server admits; where there are
// several, say the trust domain, too. * stands for any letters; in spiffe_ids and
// service_accounts within one part, and ** as the last part for all that is below.
//
// # Bad files
//
// A file is taken whole or not at all. What it held when it was last good stays, and
// [Folder.Status] says why. A name may be in two files only if nobody is whom both are
// for: else that which comes later by its name is bad. A file that is removed takes its
// resources along. A change is taken when it has stayed for [Config].Settle.
//
// That a resource is named which no file has for the same callers is a warning: Envoy
// may have it from elsewhere.
package folder
