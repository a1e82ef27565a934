package spec
import ("testing";"encoding/json";"fmt";"github.com/polyplane/polyplane/model";"os")
func TestSmoke(t *testing.T){
 d:=[]byte("network: duo\nospf: {}\nrouters: [r1, r2]\nhosts: [h1, h2]\nlinks:\n  - h1 -- r1\n  - r1 -- r2\n  - r2 -- h2\n")
 if f:=os.Getenv("F");f!=""{d,_=os.ReadFile(f)}
 n,err:=Parse("duo.yaml",d,Options{}); if err!=nil{t.Fatal("\n"+err.Error())}
 r,as,err:=model.Resolve(n[0],model.Assigned{},model.NewNumbers()); if err!=nil{t.Fatal(err)}
 j,_:=json.MarshalIndent(r,""," "); fmt.Println(string(j)); j,_=json.MarshalIndent(as,""," "); fmt.Println(string(j))
}
