package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"strconv"

	"github.com/countersign-dev/countersign/internal/endpoint"
)

// pageSize is how many objects a page of a list has at most.
const pageSize = 500

// metadataOf is what to accept for objects without their content.
func metadataOf(r Call) string {
	kind := "PartialObjectMetadataList"
	if r.Query.Has("watch") {
		kind = "PartialObjectMetadata"
	}
	return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1"
}

type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// List calls see with each object of the collection, as JSON that is valid until see returns. No
// more than a page is in memory. It returns the version of the list, for [Client.Watch]. An error of see ends it.
func (c *Client) List(ctx context.Context, r Call, see func(object json.RawMessage) error) (resourceVersion string, err error) {
	query := url.Values{}
	maps.Copy(query, r.Query)
	r.Query = query
	for limit := pageSize; ; {
		query.Set("limit", strconv.Itoa(limit))
		var got page
		err := c.Do(ctx, r, &got)
		if errors.Is(err, endpoint.ErrTooLong) && limit > 1 {
			limit /= 2 // objects differ in size, and others write them
			continue
		}
		if err != nil {
			return "", err
		}
		for _, object := range got.Items {
			if err := see(object); err != nil {
				return "", err
			}
		}
		if got.Metadata.Continue == "" {
			return got.Metadata.ResourceVersion, nil
		}
		query.Set("continue", got.Metadata.Continue)
	}
}
