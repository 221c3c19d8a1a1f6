// Package folder (experimental) serves listeners, routes, clusters, endpoints and a name table
// from a folder of files that contain Envoy resources in YAML or JSON. A control plane calls
// [New], passes [Folder.Types] to the server of package discovery, and runs [Folder.Run], whose
// goroutine reloads the folder.
//
// # Files
//
// All files ending in .yaml, .yml or .json are read, except hidden files and those in subfolders. A
// file contains one document, or several separated by "---". A document is
//
//   - a resource with "@type", as Envoy writes it;
//   - or one or more of: "resources:", a list of resources (a file of Envoy's filesystem discovery;
//     "version_info" is ignored); "static_resources:" with "listeners" and "clusters", from a
//     bootstrap; "hosts:", the entries of the name table; and, in the first document only, "for:".
//
// Fields are those of protobuf's JSON mapping, in original or lowerCamelCase spelling; unknown
// fields are errors. Each "@type" must be of Envoy's API version 3, without contrib. Resources,
// including those inside an Any, must pass Envoy's own validation rules.
//
// "hosts:" maps host names to "ips", "registry", "shortname" and "namespace", as in Istio's
// NameTable.
//
// # Who gets a file
//
// Every caller the server admits, or those "for:" selects: each key given must match with one of
// its entries.
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
// The first four match the verified identity, and clusters matches the cluster that this
// identity may claim. node_ids and labels are a client's own claims: they narrow
// the selection and grant nothing, so another key, or "anyone: true", is required beside
// them. A namespace matches in every trust domain the server admits; with several, give the
// trust domain, too. * matches any characters; in spiffe_ids and service_accounts, only
// within one segment, and ** as the last segment matches everything below.
//
// # Bad files
//
// A file is accepted as a whole or not at all. The last good content stays in use, and
// [Folder.Status] gives the reason. Two files may contain the same name only if no caller
// can get both; otherwise the file that sorts later is bad. Removing a file removes its
// resources. A change takes effect once the file has been stable for [Config].Settle.
//
// A reference to a resource that no file provides for the same callers is only a warning:
// Envoy may get it from elsewhere. So is a cluster, endpoint assignment or route configuration that
// nothing in the folder uses, where the same callers get a listener from it.
package folder
