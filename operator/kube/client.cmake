# The client: credentials, requests, writes.
module(op_kube_client
  SOURCES resource.c credentials.c kubeconfig.c client.c client_attempt.c client_auth.c
          client_status.c write.c
  DEPS kiln_net kiln_yaml kiln_curl_loop PkgConfig::LIBCJSON)
