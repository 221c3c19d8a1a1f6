// Package signing has what the doors of Kubernetes' certificate APIs share: which signer names
// are ours to serve ([CheckName]), the engine's door for each ([PodDoor], [CSRDoor]), what an
// error of the engine means for a request ([OutcomeOf]), the loop that works on many requests at
// once ([Follower], [Work]), and what keeps one owner's requests from harming those of others
// ([Gate], [Slots]). The doors are the packages below.
package signing
