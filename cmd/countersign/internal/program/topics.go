package program

const files = `  /etc/countersign/countersign.yaml
       The configuration, as a package installs it. The agent reads it again
       when it changes.
  /etc/countersign/state.key
       The key that encrypts the state. It is in no backup of the state.
  countersign.lock, beside the configuration or the providers
       The pins: the SHA-256 of each provider that may run. "countersign
       provider lock" writes it.
  /usr/lib/countersign/providers
       The providers of the package.
  /var/lib/countersign
       The state, and what providers keep, such as the account of an ACME CA.
  /run/countersign/socket
       The socket where Envoy asks for secrets, as the package's unit has it.
  /usr/share/doc/countersign/examples
       Configurations for nginx, HAProxy and PostgreSQL, with the rules of
       polkit that they need.`

const environment = `  COUNTERSIGN_CONFIG
       The configuration file, like --config.
  COUNTERSIGN_PROVIDER_PATH
       Folders with providers, separated by colons, searched after
       --provider-dir.
  COUNTERSIGN_SOCKET, COUNTERSIGN_TTL and so on
       A variable for each flag of the agent, such as --socket. A flag counts
       before its variable, and a variable before the file. One that begins
       with COUNTERSIGN_ and is unknown stops the start.
  CA_ADDR, POD_NAMESPACE, SERVICE_ACCOUNT and so on
       Those of Istio's agent, which count last. "countersign config explain"
       shows where each value came from.
  SPIFFE_CREDENTIAL_FOLDER
       The SPIFFE credential folder to serve, like files.credential_folder.
  JOURNAL_STREAM
       Set by systemd: the log then has the journal's priorities, and no time
       of its own.`
