package awspca

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// refuseXML answers with an error of the token service.
func refuseXML(status int, code, message string) http.HandlerFunc {
	return saying(status, fmt.Sprintf(`<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>1</RequestId></ErrorResponse>`, code, message))
}

func (s *service) sts(w http.ResponseWriter, r *http.Request, name string, body []byte, form url.Values) {
	if form.Get("Version") != "2011-06-15" || form.Get("RoleSessionName") == "" {
		refuseXML(http.StatusBadRequest, "ValidationError", "version or session name")(w, r)
		return
	}
	switch name {
	case "AssumeRoleWithWebIdentity":
		s.webIdentity(w, r, form)
	case "AssumeRole":
		s.assumeRole(w, r, body, form)
	default:
		refuseXML(http.StatusBadRequest, "InvalidAction", name)(w, r)
	}
}

func (s *service) webIdentity(w http.ResponseWriter, r *http.Request, form url.Values) {
	switch {
	case r.Header.Get("Authorization") != "":
		refuseXML(http.StatusForbidden, "AccessDenied", "it is signed")(w, r)
	case form.Get("RoleArn") != theRole:
		refuseXML(http.StatusForbidden, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")(w, r)
	case form.Get("WebIdentityToken") != s.jwt:
		refuseXML(http.StatusBadRequest, "ExpiredTokenException", "Token expired: "+form.Get("WebIdentityToken"))(w, r)
	default:
		s.lend(w, r, "AssumeRoleWithWebIdentity", sessionKeys)
	}
}

func (s *service) assumeRole(w http.ResponseWriter, r *http.Request, body []byte, form url.Values) {
	code, says := s.signed(r, body, "sts")
	switch {
	case code != "":
		refuseXML(http.StatusForbidden, code, says)(w, r)
	case form.Get("RoleArn") != otherRole || form.Get("ExternalId") != theExternalID:
		refuseXML(http.StatusForbidden, "AccessDenied", "User is not authorized to perform: sts:AssumeRole")(w, r)
	default:
		s.lend(w, r, "AssumeRole", roleKeys)
	}
}

// lend gives out temporary credentials, which the service accepts from then on.
func (s *service) lend(w http.ResponseWriter, r *http.Request, action string, creds aws.Credentials) {
	s.mu.Lock()
	s.keys[creds.AccessKeyID] = creds
	s.mu.Unlock()
	saying(http.StatusOK, fmt.Sprintf(`<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId><SecretAccessKey>%[3]s</SecretAccessKey><SessionToken>%[4]s</SessionToken><Expiration>%[5]s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`,
		action, creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))(w, r)
}
